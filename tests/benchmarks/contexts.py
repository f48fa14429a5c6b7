"""contexts: facts that the last request still has, with Strands' conversation managers and ours.

The conversation has 120 turns, with a tool result of 6,000 characters in every third, and a model
with a window of 8,000 tokens. The summarizing model writes nothing useful, so that the counted
facts were kept by the mechanism itself. No data leaves this machine.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import SummarizingConversationManager
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

from strands_manga_memory import MangaMemory
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.testing import ScriptedModel
from tests.unit.session.support import tool_use

TURNS, WINDOW = 120, 8_000
FACTS = {
    2: ("My favorite genre is gothic horror.", "gothic horror"),
    5: ("I prefer hardcover editions.", "hardcover"),
    9: ("My order number is ORD-55120.", "ORD-55120"),
    14: ("Correction: my budget is 7,250 yen, not 5,000.", "7,250"),
    22: ("I hate spiders, never show me any.", "spiders"),
    31: ("My daughter Hina reads with me.", "Hina"),
    44: ("Please answer in Japanese from now on.", "Japanese"),
    58: ("I decided to take the box set of Uzumaki.", "Uzumaki"),
    73: ("My order number for the present is ORD-66310.", "ORD-66310"),
    90: ("Deliver it to the office in Kawasaki, please.", "Kawasaki"),
}
"""Facts that the user states, keyed by turn: the statement, and the words that are searched for."""

PLAIN = "slidingwindow", "summarizing", "auto"
OURS = "ours_importance", "ours_summarize"

BUDGETS: dict[str, str | float] = {
    "ours_importance_facts_of_10": ">= 8",
    "ours_summarize_facts_of_10": ">= 10",
    "ours_importance_requests_over_the_window": 0,
    "ours_summarize_requests_over_the_window": 0,
    "ours_importance_restored_exactly": ">= 1",
    "ours_summarize_restored_exactly": ">= 1",
}


@tool
def catalogue(page: int) -> str:
    """Return a page of the catalogue."""
    rows = (
        f'{{"row": {page}{at}, "title": "Volume {at} of {page}", "price": {300 + at}}},\n'
        for at in range(115)
    )
    return "".join(rows)[:6_000]


def _tokens(messages: Any) -> int:
    """Return the tokens that a provider with this tokenizer reports."""
    return sum(map(default_counter().count, messages))


def _reply(messages: Any) -> Any:
    last = messages[-1]["content"]
    if any("toolResult" in block for block in last):
        return "That page has 115 rows; which one would you like to hear more about?"
    text = " ".join(block.get("text", "") for block in last)
    if "page of the catalogue" in text:
        return [
            tool_use(
                f"call-{len(text)}-{text.split('number ')[-1][:4].strip()}",
                "catalogue",
                page=len(messages),
            )
        ]
    return "I see. There is a lot to say about that, and I am glad to help you further with it."


def _user_text(turn: int) -> str:
    if turn in FACTS:
        return FACTS[turn][0]
    if turn % 3 == 0:
        return f"Show me a page of the catalogue, number {turn}."
    return (
        f"And what about the shop window in the street, the one with the number {turn}? I walked"
        " past it again today."
    )


class Way:
    """Method that limits a history.

    Args:
        name: One of ``PLAIN`` and ``OURS``.
        folder: Folder of the sessions.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.model = ScriptedModel(_reply, usage=_tokens)
        self.model.config["context_window_limit"] = WINDOW
        self.aux = ScriptedModel(lambda _: "They talked about the shop for a while.")
        self.aux.config["context_window_limit"] = WINDOW
        self._folder = folder
        self._memory: MangaMemory | None = None

    def agent(self) -> Agent:
        """Return a restored agent of the session."""
        common: dict[str, Any] = {
            "tools": [catalogue],
            "aux_model": self.aux,
            "callback_handler": None,
        }
        if self.name in OURS:
            self._memory = MangaMemory.open(durable=f"sqlite:///{self._folder}/{self.name}.sqlite3")
            history: Any = self.name.removeprefix("ours_")
            return self._memory.agent(
                self.model, user_id="u", session_id="s", history=history, **common
            )
        storage = LocalFileStorage(self._folder / self.name)
        more: dict[str, Any] = {
            "slidingwindow": {},
            "summarizing": {"conversation_manager": SummarizingConversationManager()},
            "auto": {"context_manager": "auto", "storage": storage},
        }[self.name]
        session = SnapshotSessionManager(session_id="s", storage=storage)
        return Agent(model=self.model, session_manager=session, **common, **more)

    def closed(self) -> None:
        """Write the unsaved messages."""
        if self._memory is not None:
            self._memory.close()


def measured(way: Way) -> dict[str, float]:
    """Hold the conversation, and count the facts."""
    agent = way.agent()
    for turn in range(1, TURNS + 1):
        agent(_user_text(turn))
    agent("Before we go on: what do you know of me, and of my orders?")
    last = str(way.model.requests[-1].messages)
    sizes = [_tokens(request.messages) for request in way.model.requests]
    window = [message["content"] for message in agent.messages]
    way.closed()
    restored = [message["content"] for message in way.agent().messages]
    way.closed()
    return {
        "facts_of_10": sum(words in last for _, words in FACTS.values()),
        "tokens_of_the_last_request": sizes[-1],
        "tokens_of_the_largest_request": max(sizes),
        "requests_over_the_window": sum(size > WINDOW for size in sizes),
        "summaries_asked_for": len(way.aux.requests),
        "restored_exactly": int(restored == window),
    }


def run(ways: Callable[[str, Path], Way] = Way) -> dict[str, float]:
    """Return the counts of each method."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            f"{name}_{what}": value
            for name in (*OURS, *PLAIN)
            for what, value in measured(ways(name, Path(folder))).items()
        }
