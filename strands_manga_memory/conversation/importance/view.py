"""What a choice changes in a history: what goes, what is shortened, and what comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from strands.types.content import Message

from strands_manga_memory.conversation.history.stubs import is_between, is_stub
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
        choice: The choice, made a history.

    Attributes:
        messages: The history after, joined. What has not changed is the same object as before.
        said: Its messages one by one.
        left: What went, or was shortened, as the history had it.
        gone: Positions in ``pool`` of what was in the history and is not now.
        cut: What was shortened, by position in ``pool``; marks are none.
        newly_marked: Positions in ``pool`` of what was said in the history and is a mark now.
    """

    def __init__(self, history: Sequence[Message], said: Sequence[Message], pool: Sequence[Message], choice: Choice) -> None:
        stays = {at: choice.kept[at] for run in choice.runs for at in run}
        was = _present(said, pool)
        self.said: list[Message] = []
        self.left: list[Message] = _beyond(said, pool)
        self.gone: list[int] = []
        self.newly_marked: list[int] = []
        for at in sorted(stays.keys() | was.keys()):
            before, after = was.get(at), stays.get(at)
            if before is not None and after is None:
                self.gone.append(at)
                self.left.append(before)
            if after is None:
                continue
            # What is at hand may have a mark where the history has the message.
            is_changed = at in choice.shortened or (before is not None and is_stub(after) > is_stub(before))
            if before is not None and after is not before and is_changed:
                if content_fingerprint(after) == content_fingerprint(before):
                    after = before
                else:
                    self.left.append(before)
                    if is_stub(after):
                        self.newly_marked.append(at)
            self.said.append(after)
        self.messages = _joined(history, self.said, choice.runs)
        self.cut = {at: choice.kept[at] for at in choice.shortened if at < len(pool) and not is_stub(choice.kept[at])}
        self.is_unchanged = same_objects(self.messages, history)

    def tell(self, tokens_before: int, choice: Choice) -> None:
        """Log and count what was changed in a history of so many tokens."""
        if self.cut:
            said = "messages=<%d>, tokens_before=<%d>, tokens_after=<%d>, budget=<%d> | messages were shortened"
            logger.info(said, len(self.cut), tokens_before, choice.tokens, choice.budget)
        freed = max(0, tokens_before - choice.tokens)
        note(TRIM, counts={"messages": len(self.gone), "shortened": len(choice.shortened), "tokens": freed})


def _present(said: Sequence[Message], pool: Sequence[Message]) -> dict[int, Message]:
    """Return the messages of a history as it shows them, by position in a pool; of marks that only stand between none."""
    if pool is said:
        return {at: message for at, message in enumerate(said) if not is_between(message)}
    shown = {message.get("tracking_id"): message for message in said if not is_between(message)}
    return {at: shown[id_] for at, message in enumerate(pool) if (id_ := message.get("tracking_id")) in shown}


def _beyond(said: Sequence[Message], pool: Sequence[Message]) -> list[Message]:
    """Return the messages of a history that a pool lacks, as it was narrowed: they leave."""
    if pool is said:
        return []
    at_hand = {message.get("tracking_id") for message in pool}
    return [one for one in said if one.get("tracking_id") not in at_hand and not is_between(one)]


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
