"""ManagerState: what a session keeps of a manager, and how its history is brought back from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strands.types.content import Message

from strands_manga_memory.conversation.history.layout import Layout, MessageLog, identify
from strands_manga_memory.conversation.importance.weighing.kept_notes import KeptNotes
from strands_manga_memory.conversation.importance.weighing.notes import Notes
from strands_manga_memory.conversation.tokens.calibration import Calibration
from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.stores.encoding.derived import DERIVED

_NO_LAYOUT = Layout()


class ManagerState:
    """The layout of the window, the ratio that was learned of the model, and the notes on the history.

    The layout is kept if ``persist_layout``: for session managers that log messages.
    """

    __slots__ = ("_calibration", "_is_started", "_kept_notes", "_log", "_notes", "_restored", "persist_layout")

    def __init__(self, notes: Notes, kept_notes: KeptNotes, calibration: Calibration) -> None:
        self.persist_layout = True
        self._notes = notes
        self._kept_notes = kept_notes
        self._calibration = calibration
        self._log = MessageLog()
        self._restored = _NO_LAYOUT
        self._is_started = False

    @property
    def records(self) -> int:
        """How many messages have been logged."""
        return self._log.length

    def start(self, messages: list[Message]) -> None:
        """Bring back the exact window from the messages that a session manager restored, and what was noted of them."""
        if self.persist_layout:
            identify(messages, self._restored.skip)
            self._log = MessageLog(self._restored.skip)
            self._log.add_restored(messages)
            if (window := self._restored.replay(messages)) is not None:
                messages[:] = window
        self._restored = _NO_LAYOUT
        self._kept_notes.give(messages, self._notes)
        self._is_started = True

    def adding(self, message: Message) -> None:
        """Take note of a message that is about to be logged."""
        if self.persist_layout:
            self._log.adding(message)

    def added(self) -> None:
        """Take note that nothing went wrong while it was logged."""
        self._log.added()

    def settle(self) -> None:
        """Take note that no message is being logged any more."""
        self._log.settle()

    def forget_all_but(self, messages: Sequence[Message]) -> None:
        """Drop what is known of the log that no message needs."""
        self._log.forget_all_but(messages)

    def to_state(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return what a session keeps beside the history: small, and the same until something really changes."""
        state: dict[str, Any] = {}
        if self._calibration.settled != 1.0:
            state["ratio"] = self._calibration.settled
        if not self._is_started:
            return state
        if self.persist_layout:
            layout = self._log.layout(messages)
            state["removed_message_count"] = layout.skip
            if (window := layout.to_state()) is not None:
                state["layout"] = window
        if (notes := self._kept_notes.to_state(messages, self._notes)) is not None:
            state[DERIVED] = notes
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`to_state` returned; ``CorruptRecordError`` if it is malformed, or a newer version wrote it."""
        skip, ratio = state.get("removed_message_count"), state.get("ratio", 1.0)
        if not isinstance(skip, int) or skip < 0 or not isinstance(ratio, int | float):
            raise CorruptRecordError("the state of the conversation manager is malformed", record="conversation manager state")
        layout = Layout.from_state(state.get("layout"), skip)
        if not self._is_started:  # later, from a snapshot, the messages are exact and the log is still the same
            self._restored = layout
            self._kept_notes.restore(state.get(DERIVED))
        self._calibration.restore(ratio)
