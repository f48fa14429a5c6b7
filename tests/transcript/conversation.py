"""Hold a shop conversation on a real agent, and keep every request that its model received."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from strands.types.content import Messages

from strands_manga_memory import ConversationScope, MangaMemory, guard_tool
from strands_manga_memory.testing import FakeClock, Request, ScriptedModel

from .script import SCRIPTS, Turn
from .shop import make_tools

SYSTEM_PROMPT = "You are MangaAssist, the assistant of a manga shop."
_START = datetime(2026, 3, 2, 10, tzinfo=UTC).timestamp()
_DAY = 86_400.0


@dataclass(frozen=True)
class Exchange:
    """One turn as held: its number, the user's words, and the requests that the model received."""

    number: int
    user: str
    requests: tuple[Request, ...]


def _environment(scope: ConversationScope) -> dict[str, Any]:
    """Return the shop's view of the user: a premium customer with one book in the cart."""
    cart = ({"title": "Gyo", "quantity": 1, "price": 2600},)
    return {"tier": "premium", "locale": "en-JP", "timezone": "Asia/Tokyo", "cart": cart}


class _Actor:
    """Plays the assistant of the current turn: its tool calls, then its answer."""

    def __init__(self) -> None:
        self.turn = Turn("", "")
        self._calls = 0

    def __call__(self, messages: Messages) -> str | list[dict[str, Any]]:
        done = _calls_since_question(messages)
        if done >= len(self.turn.calls):
            return self.turn.answer
        call = self.turn.calls[done]
        self._calls += 1
        return [
            {
                "toolUse": {
                    "toolUseId": f"call_{self._calls}",
                    "name": call.name,
                    "input": call.input,
                }
            }
        ]


def _calls_since_question(messages: Messages) -> int:
    """Return the tool results after the last user message that holds words only."""
    count = 0
    for message in reversed(messages):
        if message["role"] == "user" and not any("toolResult" in b for b in message["content"]):
            return count
        count += sum("toolResult" in block for block in message["content"])
    return count


def _numbered_ids() -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that makes Strands' message ids equal in every conversation.

    A truncated message says the first letters of its id, and their tokens count.
    """
    numbers = itertools.count()

    def next_id() -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(next(numbers))))

    return lambda: mock.patch("strands.types.content._generate_tracking_id", next_id)


def hold(
    folder: Path,
    language: str,
    *,
    rebuild: bool = False,
    usage: Callable[[Messages], int] | None = None,
    window: int = 200_000,
    **options: Any,
) -> Iterator[Exchange]:
    """Hold the conversation turn by turn.

    Two conversations have the same message ids and the same times.

    Args:
        folder: Folder of the SQLite files.
        language: ``en`` or ``ja``.
        rebuild: Build the agent anew for each turn, as a web worker does.
        usage: Input tokens that the model reports for the messages of a request. Default: 4
            characters a token.
        window: Context window of the model, in tokens.
        options: Further arguments of ``MangaMemory.agent``.
    """
    folder.mkdir(exist_ok=True)
    script, clock, number = SCRIPTS[language], FakeClock(_START), 0
    tools = [guard_tool(each, clock=clock) for each in make_tools()]
    numbered_ids = _numbered_ids()
    for session_id, turns in (("monday", script.first_visit), ("next-week", script.return_visit)):
        memory = MangaMemory.open(
            durable=f"sqlite:///{folder / 'shop.sqlite3'}",
            memories=True,
            clock=clock,
            environment=_environment,
        )
        actor, agent = _Actor(), None
        for turn in turns:
            number, actor.turn = number + 1, turn
            if agent is None or rebuild:
                model = ScriptedModel(actor, usage=usage)
                model.update_config(context_window_limit=window)
                agent = memory.agent(
                    model,
                    user_id="alex",
                    session_id=session_id,
                    tools=tools,
                    system_prompt=SYSTEM_PROMPT,
                    callback_handler=None,
                    **{"recall": True, "task_state": True, "max_tokens": 2_048, **options},
                )
            seen = len(model.requests)
            with numbered_ids():
                agent(turn.user)
            yield Exchange(number, turn.user, tuple(model.requests[seen:]))
            clock.advance(40)
        memory.finalize(ConversationScope("alex", session_id))
        memory.close()
        clock.advance(8 * _DAY)
