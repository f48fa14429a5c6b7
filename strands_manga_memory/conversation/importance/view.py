"""What a choice changes in a history: what goes, what is shortened, and what comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import condensed, is_between, is_stub
from strands_manga_memory.conversation.importance.choosing.choice import Choice
from strands_manga_memory.conversation.tokens.ledger import same_objects
from strands_manga_memory.joining import is_joined, joined
from strands_manga_memory.messages import content_fingerprint
from strands_manga_memory.telemetry import TRIM, note

logger = logging.getLogger(__name__)


class View:
    """The history after a choice from ``pool``: from the history with what had left it, or from the history itself.

    Args:
        history: The history, joined where it was joined.
        said: Its messages as they were said.
        pool: What was chosen from: ``said``, or more.
        choice: The choice.

    Attributes:
        messages: The history after, joined. What has not changed is the same object as before.
        said: Its messages one by one.
        left: What went, or was shortened, as the history had it.
        gone: Positions in ``pool`` of what was in the history and is not now.
        cut: What was shortened, by position in ``pool``; marks are none.
        newly_marked: Positions in ``pool`` of what was said in the history and is a mark now.
    """

    def __init__(self, history: Sequence[Message], said: Sequence[Message], pool: Sequence[Message], choice: Choice) -> None:
        present = {message.get("tracking_id"): message for message in said} if pool is not said else {}
        shown = [at for at in choice.kept if at < len(pool)]
        joined_to = condensed([choice.kept[at] for at in shown])
        stays = {shown[at] for run in joined_to for at in run}
        self.said: list[Message] = []
        self.left: list[Message] = []
        self.gone: list[int] = []
        self.newly_marked: list[int] = []
        for at, message in enumerate(pool):
            before = message if pool is said else present.get(message.get("tracking_id"))
            before = None if before is None or is_between(before) else before
            after = choice.kept[at] if at in stays else None
            if after is None:
                if before is not None:
                    self.gone.append(at)
                    self.left.append(before)
                continue
            if before is not None and after is not before and at in choice.shortened:
                if content_fingerprint(after) == content_fingerprint(before):
                    after = before
                else:
                    self.left.append(before)
                    if is_stub(after):
                        self.newly_marked.append(at)
            self.said.append(after)
        self.messages = _joined(history, self.said, joined_to)
        self.cut = {at: choice.kept[at] for at in choice.shortened if at < len(pool) and not is_stub(choice.kept[at])}
        self.is_unchanged = same_objects(self.messages, history)

    def tell(self, tokens_before: int, choice: Choice) -> None:
        """Log and count what was changed in a history of so many tokens."""
        if self.cut:
            said = "messages=<%d>, tokens_before=<%d>, tokens_after=<%d>, budget=<%d> | messages were shortened"
            logger.info(said, len(self.cut), tokens_before, choice.tokens, choice.budget)
        freed = max(0, tokens_before - choice.tokens)
        note(TRIM, counts={"messages": len(self.gone), "shortened": len(choice.shortened), "tokens": freed})


def _joined(history: Sequence[Message], said: Sequence[Message], runs_of_all: Sequence[Sequence[int]]) -> list[Message]:
    """Return what was said as a history, in the same objects where a message of it is the same."""
    known = {message.get("tracking_id"): message for message in history if is_joined(message)}
    messages: list[Message] = []
    at = 0
    for run in runs_of_all:
        parts, at = said[at : at + len(run)], at + len(run)
        message = joined(parts)
        before = known.get(message.get("tracking_id")) if len(parts) > 1 else None
        messages.append(message if before is None or before != message else before)
    return messages
