"""Transfer of a conversation while another process stores one under the same id."""

from typing import Any

import pytest

from strands_manga_memory import TieredSessionManager
from strands_manga_memory.session import stored_session
from strands_manga_memory.session.conversation_transfer import TransferredConversation
from tests.unit.session.support import MemoryTable


def test_transfer_with_a_pending_interrupt_spares_a_conversation_that_begins_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other conversation is stored after the transfer has found none."""
    table = MemoryTable()
    transferring, other = (TieredSessionManager("s", hot=None, durable=table) for _ in range(2))
    begin = stored_session.begin_with

    def begin_late(*arguments: Any, **options: Any) -> bool:
        monkeypatch.undo()
        other.log([{"role": "user", "content": [{"text": "first"}]}], "a")
        return begin(*arguments, **options)

    monkeypatch.setattr(stored_session, "begin_with", begin_late)
    log = [({"role": "user", "content": [{"text": "late"}], "tracking_id": "1"}, 1.0)]
    states = {"interrupt_state": {"activated": True, "interrupts": {}, "context": {}}}
    assert (
        transferring.transfer(TransferredConversation(log=log, window=[], states=states), "a")
        == "exists"
    )
