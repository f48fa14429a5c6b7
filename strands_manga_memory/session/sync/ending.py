"""Ending: a life of a conversation gets a grave in its replicas, and its log goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strands_manga_memory.exceptions import CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.core.identity import grave_by_age, new_grave
from strands_manga_memory.session.core.merge import Copy
from strands_manga_memory.session.sync.pair import NO_LIVES, Pair, Replica

_Graves = frozenset[str]


def delete(pair: Pair, grave: str | None = None) -> None:
    """End the life, in the durable replica first, and remove its log; without ``grave``, that of its session, it gets its own.

    Raises:
        StoreUnavailableError: A tier does not know it yet. Once one does, nobody who reads both is shown the life.
    """
    graves = frozenset([grave] if grave else [])
    if pair.durable is not None:
        with pair.io[pair.durable]:
            over = pair.durable.segments.lives()  # before there is a grave behind which the next life may begin
            graves = _bury(pair, pair.durable, new_grave, graves, discards=True)
            with pair.lock:
                pair.over |= over
            clear_what_is_over(pair)
    if pair.hot is not None:
        _bury(pair, pair.hot, new_grave, graves, discards=True)


def end(pair: Pair, is_over: Callable[[Copy], bool]) -> bool:
    """End a flushed life by age, in the durable replica first; False if it is not over by what a store has now.

    Raises:
        StoreUnavailableError: The durable replica, or the only one, cannot be written. The life goes on.
    """
    graves: _Graves = frozenset()
    for replica in pair.io:
        try:
            graves = _bury(pair, replica, grave_by_age, graves, is_over=is_over)
        except StoreUnavailableError:
            if replica is pair.last:
                raise
        if not graves:
            return False
    return True


def _bury(
    pair: Pair,
    replica: Replica,
    dug: Callable[[_Graves], str],
    graves: _Graves,
    *,
    is_over: Callable[[Copy], bool] = lambda copy: True,
    discards: bool = False,
) -> _Graves:
    """Have a replica know graves of the life, or, without any, dig one; return them, none if the life is not over."""

    def bury() -> bool:
        nonlocal graves
        copy, there = pair.copy, replica.copy
        if graves and graves <= there.graves:  # what is there has begun behind them
            return True
        if not is_over(copy):
            graves = frozenset()
            return True
        graves |= {dug(there.lives)} if there.lives or not graves else set()
        buried = Copy(graves=copy.graves | graves, clock=copy.clock)
        is_written = replica.write(buried)
        if is_written:
            pair.absorb(buried)
        return is_written

    pair.until_written(replica, bury, look=partial(_look_at, pair, replica, discards=discards))
    return graves


def _look_at(pair: Pair, replica: Replica, *, discards: bool) -> None:
    try:
        pair.look(replica)
    except CorruptRecordError:
        if not discards:
            raise
        replica.discard()
        pair.look(replica)


def clear_what_is_over(pair: Pair) -> None:
    """Delete the logs of lives that are over, and from others what is said again in a later life, where all is stored.

    Raises:
        StoreUnavailableError: The table does not answer; it is tried again with the next flush.
    """
    if pair.durable is None:
        return
    with pair.lock:
        author = pair.author
        if not (pair.over or author.moved):
            return
        over, pair.over = pair.over - author.copy.lives, NO_LIVES
        moved, author.moved = (author.moved, []) if not author.outbox.drafts else ([], author.moved)
    try:
        pair.durable.segments.delete(over)
        pair.durable.segments.take_out(moved)
    except StoreUnavailableError:
        with pair.lock:
            pair.over |= over
            author.moved += moved
        raise
