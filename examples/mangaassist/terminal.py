"""Chat in the terminal: streamed answers, and below each the state of the conversation's memory."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mangaassist.assistant.shop import Shop
from mangaassist.stock_server import FAULTS
from mangaassist.web.visitors import Visitors
from strands_manga_memory import ConversationScope

HELP = f"""\
Ask about manga, stock, prices or your orders, in English or Japanese. Besides:
  /memory        what was kept and dropped of this conversation, and why
  /tools         the tools and their breakers
  /fault KIND    what is wrong with the stock server: {", ".join(FAULTS)}
  /new           end this session: what is worth it becomes a memory of you
  /forget        delete every session and memory of yours
  /quit"""
_COLOURS = {
    "kept": "green",
    "shortened": "yellow",
    "dropped": "red",
    "closed": "green",
    "open": "red",
    "half_open": "yellow",
}


class Terminal:
    """Chat of one user at a terminal."""

    def __init__(self, shop: Shop, visitors: Visitors, user: str, console: Console) -> None:
        self._shop = shop
        self._visitors = visitors
        self._user = user
        self._session = visitors.at_terminal(user).session_id
        self._console = console
        self._views: dict[str, dict[str, Any]] = {}
        self._agent = ""
        shop.on_change = self._update_view

    def _update_view(self, scope: ConversationScope, view: dict[str, Any]) -> None:
        if scope.session_id == self._session:
            self._views[scope.agent_id], self._agent = view, scope.agent_id

    def _leave(self) -> str:
        """Begin a new session, and return the previous one."""
        left, self._session = self._session, self._visitors.begin_session(self._user).session_id
        self._views, self._agent = {}, ""
        return left

    def chat(self) -> None:
        """Chat until the user ends it."""
        turns = asyncio.run(self._shop.history(self._user, self._session))
        self._views = self._shop.views(self._user, self._session)
        self._console.print(HELP, markup=False, highlight=False)
        if turns:
            self._agent = turns[-1].agent
            self._console.print(
                f"\n[dim]going on after {len(turns)} turns; the last one was:[/dim]"
            )
            self._console.print(
                Text(
                    f"{self._user}> {turns[-1].question}\n{turns[-1].agent}> {turns[-1].answer}",
                    style="dim",
                )
            )
        while True:
            try:
                text = self._console.input(Text(f"\n{self._user}> ", style="bold")).strip()
            except EOFError:
                return
            if text == "/quit":
                return
            if text.startswith("/"):
                self._command(*text[1:].split(maxsplit=1))
            elif text:
                asyncio.run(self._ask(text))

    async def _ask(self, text: str) -> None:
        speaker = None
        async for piece in self._shop.ask(self._user, self._session, text):
            if speaker is None:
                speaker = piece.agent
                self._console.print(Text(f"{speaker}> ", style="bold red"), end="")
                if piece.answer:  # no agent was reached
                    self._console.print(Text(piece.answer), end="")
            self._console.print(Text(piece.text), end="")
        self._console.print()
        self._console.print(self._summary(), style="dim", highlight=False)

    def _summary(self) -> str:
        view = self._views.get(self._agent)
        if view is None:
            return ""
        outcomes = [message["outcome"] for message in view["messages"]]
        tiers = view["tiers"]
        counts = ", ".join(
            f"{outcomes.count(outcome)} {outcome}" for outcome in ("kept", "shortened", "dropped")
        )
        down = [
            name for name, tool in self._shop.servers.status().items() if tool["state"] != "closed"
        ]
        return (
            f"{view['tokens']:,} of {view['budget']:,} tokens; messages: {counts}; durable tier"
            f" {tiers['durable']}, {tiers['unsaved_messages']} unsaved"
            + (f"; breaker not closed: {', '.join(down)}" if down else "")
        )

    def _command(self, name: str = "", argument: str = "") -> None:
        if name == "memory":
            self._console.print(self._memory())
        elif name == "tools":
            self._console.print(self._tools())
        elif name == "fault" and argument in FAULTS:
            is_set = self._shop.servers.set_fault(argument)
            self._console.print(
                "done"
                if is_set
                else "the stock server is down; the next question about stock brings it back"
            )
        elif name == "new":
            self._shop.finish(self._user, self._leave())
            self._console.print(Text(self._shop.known(self._user)))
        elif name == "forget":
            self._leave()
            self._console.print(
                "everything is gone"
                if self._shop.forget(self._user)
                else "not everything could be deleted"
            )
        else:
            self._console.print(HELP, markup=False, highlight=False)

    def _memory(self) -> Table:
        view = self._views.get(self._agent, {"messages": []})
        table = Table(
            title=f"memory of the agent {self._agent or '(none yet)'}", title_justify="left"
        )
        for column in ("fate", "score", "tokens", "act", "message", "why"):
            table.add_column(column, no_wrap=column not in ("message", "why"))
        for row in view["messages"]:
            outcome = Text(row["outcome"], style=_COLOURS.get(row["outcome"], ""))
            message = Text(row["text"].replace("\n", " ")[:80])
            table.add_row(
                outcome,
                f"{row['score']:.2f}",
                str(row["tokens"]),
                row["act"],
                message,
                Text(row["why"]),
            )
        return table

    def _tools(self) -> Table:
        table = Table(title="tools", title_justify="left")
        for column in (
            "tool",
            "breaker",
            "server",
            "calls",
            "failures in a row",
            "rejected",
            "stale answers",
        ):
            table.add_column(column)
        for name, tool in self._shop.servers.status().items():
            state = Text(tool["state"], style=_COLOURS.get(tool["state"], ""))
            counts = (
                str(tool[field]) for field in ("calls", "failures_in_a_row", "rejected", "stale")
            )
            table.add_row(name, state, tool["server_state"], *counts)
        return table


def chat(shop: Shop, visitors: Visitors, user: str) -> int:
    """Chat with a user in the terminal until the user ends it, and return 0."""
    Terminal(shop, visitors, user, Console()).chat()
    return 0
