"""translated: what redis-py raises, as an error of this package that names the cause and what mends it."""

from __future__ import annotations

import re
from typing import NamedTuple

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ClusterError,
    ConnectionError,  # noqa: A004
    ExternalAuthProviderError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from strands_manga_memory.exceptions import StoreError, StoreRefusedError, StoreUnavailableError


class _Refusal(NamedTuple):
    """A cause, the errors that redis-py has for it, the server's words for it where it has none, and what mends it."""

    reason: str
    kinds: tuple[type[Exception], ...]
    words: str
    remedy: str
    passes: bool = False
    """Whether it may be over within a moment, as while a replica takes over."""


# The first that fits counts. redis-py, or a script, may wrap what the server says: then only its words tell.
_REFUSALS = (
    _Refusal(
        "authentication",
        (AuthenticationError, AuthenticationWrongNumberOfArgsError, AuthorizationError, ExternalAuthProviderError),
        r"WRONGPASS|NOAUTH|invalid username-password pair",
        "its user or password is not, or no longer, right: give the client the present one",
    ),
    _Refusal(
        "permission",
        (NoPermissionError,),
        r"NOPERM|ACL failure",
        "grant its user what `strands-manga-memory permissions --print acl` lists",
    ),
    _Refusal("read-only", (ReadOnlyError,), r"READONLY", "it is a replica: connect to the primary", passes=True),
    _Refusal("loading", (BusyLoadingError,), r"LOADING", "it reads its data from disk: wait until it has", passes=True),
    _Refusal("primary", (MasterDownError,), r"MASTERDOWN", "the replica has lost its primary: bring that back", passes=True),
    _Refusal("cluster", (ClusterDownError,), r"CLUSTERDOWN", "it is not whole: CLUSTER INFO says why", passes=True),
    _Refusal(
        "cluster",
        (AskError, ClusterCrossSlotError),
        r"MOVED|CROSSSLOT",
        "it is a node of a cluster: open it with redis+cluster://",
    ),
    _Refusal(
        "memory",
        (OutOfMemoryError,),
        r"OOM",
        "it is full: raise maxmemory, or let it evict with maxmemory-policy volatile-ttl",
        passes=True,
    ),
    _Refusal("clients", (), r"max number of clients", "it has too many clients: raise maxclients", passes=True),
    _Refusal("disk", (), r"MISCONF", "it cannot write to its disk: its log says why", passes=True),
    _Refusal("replicas", (), r"NOREPLICAS", "it has too few replicas in touch for a write: bring them back", passes=True),
    _Refusal("script", (), r"BUSY", "a script of somebody keeps it busy: SCRIPT KILL ends that", passes=True),
)
_PASSING = (ClusterError, ConnectionError, RedisClusterException, TimeoutError, TryAgainError, OSError)
_MOVING = "access a non local key"  # what a script says whose slot is on its way to another node
_WRONG_TYPE = "WRONGTYPE"


def translated(error: Exception, key: str = "") -> StoreError:
    """Return the error of this package that stands for one of the client, or of what gives it its credentials.

    Args:
        error: What was raised.
        key: The key that was asked for, if it was one.
    """
    text = str(error)
    what = f"redis | {type(error).__name__}: {text}"
    if re.search(rf"\b{_WRONG_TYPE}\b", text):
        remedy = "somebody else's value is in its place: DEL it"
        return StoreRefusedError(f"record={key!r} | {text}", reason="type", remedy=remedy, record=key)
    refusal = _refusal_of(error, text)
    if refusal is not None:
        return StoreRefusedError(what, reason=refusal.reason, remedy=refusal.remedy)
    if isinstance(error, _PASSING) or _MOVING in text:
        return StoreUnavailableError(what)
    if isinstance(error, ResponseError):
        return StoreRefusedError(what, reason="request", remedy="its log, or what stands between it and us, says why")
    return StoreRefusedError(what, reason="client", remedy="the client, or what gives it its credentials, fails")


def may_pass(error: Exception) -> bool:
    """Tell whether what the client raised may be over within a moment."""
    text = str(error)
    refusal = _refusal_of(error, text)
    return refusal.passes if refusal is not None else isinstance(error, _PASSING) or _MOVING in text


def _refusal_of(error: Exception, text: str) -> _Refusal | None:
    for refusal in _REFUSALS:
        if isinstance(error, refusal.kinds) or re.search(rf"(?:^|[-\s])(?:{refusal.words})\b", text):
            return refusal
    return None
