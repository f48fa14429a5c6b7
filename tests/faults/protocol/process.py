"""A real process that takes turns of a conversation and journals acknowledged turns."""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from pathlib import Path

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.session.protocol.conversation import Conversation
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores import open_hot_store, open_table
from strands_manga_memory.stores.codec import dump


def open_hold(hold: Conversation) -> None:
    """Load a conversation, and show its messages to the agent."""
    hold.load()
    hold.complete()
    hold.local.adopt_window()


class Opener:
    """Opens holds of one conversation in real stores, as a process does that knows nothing.

    Args:
        hot: URL of the hot store; empty for none.
        durable: URL of the table; empty for none.
        name: Session id.
    """

    def __init__(self, hot: str, durable: str, name: str) -> None:
        self._hot = open_hot_store(hot) if hot else None
        self._table = open_table(durable) if durable else None
        if self._table is not None:
            self._table.create_if_missing()
        self._name = name

    def load(self, *, hot: bool = True, durable: bool = True) -> Conversation:
        """Return a loaded hold, with both tiers or with one of them."""
        store, table = (self._hot if hot else None), (self._table if durable else None)
        hold = Conversation(
            ConversationKey(self._name, "A:a"), Tiers.of(store, table, clock=time.time), ids={}
        )
        open_hold(hold)
        return hold


def take_turns(opener: Opener, worker: str, journal: Path, until: float) -> None:
    """Take turns until a time: half with a new agent, some saved in parts, some evicting."""
    hold: Conversation | None = None
    with journal.open("a", encoding="utf-8") as file:
        for number in itertools.count():
            if time.time() >= until:
                return
            try:
                if hold is None or random.random() < 0.5:
                    hold = opener.load()
                _take_turn(hold, f"{worker}.{number}")
            except StoreUnavailableError:
                hold = None
                continue
            file.write(f"{worker}.{number}\n")
            file.flush()
            os.fsync(file.fileno())
            try:
                if hold.is_flush_due:
                    hold.flush()
            except StoreUnavailableError:
                hold = None


def _take_turn(hold: Conversation, name: str) -> None:
    hold.refresh()
    hold.complete()
    view = hold.local.adopt_window()
    keys = list(dict.fromkeys(slot.key for slot in view))
    if len(keys) > 20:
        hold.local.set_view([slot for slot in view if slot.key in keys[-15:]])
    hold.local.begin_turn()
    hold.local.append(dump({"role": "user", "content": [{"text": name}]}))
    if random.random() < 0.3:
        hold.save()
    hold.local.append(dump({"role": "assistant", "content": [{"text": f"answer to {name}"}]}))
    hold.local.end_turn()
    hold.save()


if __name__ == "__main__":
    given = sys.argv[1:]
    take_turns(
        Opener(given[0], given[1], given[2]),
        given[3],
        Path(given[4]),
        time.time() + float(given[5]),
    )
