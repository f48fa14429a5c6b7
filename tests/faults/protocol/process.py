"""A real process that takes turns of a conversation and journals acknowledged turns."""

import itertools
import os
import random
import sys
import time
from pathlib import Path

from strands_manga_memory.exceptions import OvertakenError, StoreUnavailableError
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores import open_hot_store, open_table
from strands_manga_memory.stores.codec import dump


def load_fully(storage: ConversationStorage) -> None:
    """Load a conversation, and show its messages to the agent."""
    storage.load()
    storage.complete()
    storage.local.adopt_window()


def save(storage: ConversationStorage) -> None:
    """Save a conversation's changes in the hot tier or, failing that, in the durable tier."""
    is_saved = False
    if storage.hot is not None:
        try:
            is_saved = storage.save_hot()
        except OvertakenError:
            raise
        except StoreUnavailableError:
            if storage.durable is None:
                raise
    if not is_saved:
        storage.save_durably()


class Opener:
    """Opens the storage of one conversation in real stores, as a process does that knows nothing.

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

    def load(self, *, hot: bool = True, durable: bool = True) -> ConversationStorage:
        """Return a loaded storage, with both tiers or with one of them."""
        store, table = (self._hot if hot else None), (self._table if durable else None)
        storage = ConversationStorage(
            ConversationKey(self._name, "A:a"), Tiers.of(store, table, clock=time.time), ids={}
        )
        load_fully(storage)
        return storage


def take_turns(opener: Opener, worker: str, journal: Path, until: float) -> None:
    """Take turns until a time: half with a new agent, some saved in parts, some evicting."""
    storage: ConversationStorage | None = None
    with journal.open("a", encoding="utf-8") as file:
        for number in itertools.count():
            if time.time() >= until:
                return
            try:
                if storage is None or random.random() < 0.5:
                    storage = opener.load()
                _take_turn(storage, f"{worker}.{number}")
            except StoreUnavailableError:
                storage = None
                continue
            file.write(f"{worker}.{number}\n")
            file.flush()
            os.fsync(file.fileno())
            try:
                if storage.is_flush_due:
                    storage.flush()
            except StoreUnavailableError:
                storage = None


def _take_turn(storage: ConversationStorage, name: str) -> None:
    storage.refresh()
    storage.complete()
    view = storage.local.adopt_window()
    keys = list(dict.fromkeys(slot.key for slot in view))
    if len(keys) > 20:
        storage.local.set_view([slot for slot in view if slot.key in keys[-15:]])
    storage.local.begin_turn()
    storage.local.append(dump({"role": "user", "content": [{"text": name}]}))
    if random.random() < 0.3:
        save(storage)
    storage.local.append(dump({"role": "assistant", "content": [{"text": f"answer to {name}"}]}))
    storage.local.end_turn()
    save(storage)


if __name__ == "__main__":
    given = sys.argv[1:]
    take_turns(
        Opener(given[0], given[1], given[2]),
        given[3],
        Path(given[4]),
        time.time() + float(given[5]),
    )
