"""Conversion of errors of redis-py to errors of this package, which contain the cause and a remedy."""

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


class _RedisRefusal(NamedTuple):
    """Known cause of an error from Redis, with its remedy.

    An error has this cause if its type is in ``kinds``, or if its text matches the regular expression ``words``.
    """

    reason: str
    kinds: tuple[type[Exception], ...]
    words: str
    remedy: str
    passes: bool = False
    """Whether a retry may succeed within moments, for example during a failover."""


# The first match counts. redis-py or a script may wrap the server's error, so that only the text identifies it.
_REFUSALS = (
    _RedisRefusal(
        "authentication",
        (AuthenticationError, AuthenticationWrongNumberOfArgsError, AuthorizationError, ExternalAuthProviderError),
        r"WRONGPASS|NOAUTH|invalid username-password pair",
        "user or password are wrong or outdated: configure the current ones",
    ),
    _RedisRefusal(
        "permission",
        (NoPermissionError,),
        r"NOPERM|ACL failure",
        "grant the user the permissions of `strands-manga-memory permissions --print acl`",
    ),
    _RedisRefusal("read-only", (ReadOnlyError,), r"READONLY", "the server is a replica: connect to the primary", passes=True),
    _RedisRefusal("loading", (BusyLoadingError,), r"LOADING", "the server loads its data: wait until it is ready", passes=True),
    _RedisRefusal("primary", (MasterDownError,), r"MASTERDOWN", "the replica lost its primary: restore that", passes=True),
    _RedisRefusal("cluster", (ClusterDownError,), r"CLUSTERDOWN", "the cluster is incomplete: see CLUSTER INFO", passes=True),
    _RedisRefusal(
        "cluster",
        (AskError, ClusterCrossSlotError),
        r"MOVED|CROSSSLOT",
        "the server is a node of a cluster: use redis+cluster://",
    ),
    _RedisRefusal(
        "memory",
        (OutOfMemoryError,),
        r"OOM",
        "the memory is full: raise maxmemory, or set maxmemory-policy volatile-ttl",
        passes=True,
    ),
    _RedisRefusal("clients", (), r"max number of clients", "the server has too many clients: raise maxclients", passes=True),
    _RedisRefusal("disk", (), r"MISCONF", "the server cannot write to its disk: see its log", passes=True),
    _RedisRefusal("replicas", (), r"NOREPLICAS", "too few replicas are connected for a write: restore them", passes=True),
    _RedisRefusal("script", (), r"BUSY", "another script blocks the server: run SCRIPT KILL", passes=True),
)
_PASSING = (ClusterError, ConnectionError, RedisClusterException, TimeoutError, TryAgainError, OSError)
_MOVING = "access a non local key"  # error of a script whose slot is migrating to another node


def translated(error: Exception, key: str = "") -> tuple[StoreError, bool]:
    """Convert an error of the Redis client, or of the source of its credentials, to an error of this package.

    ``key`` is the requested key for the error message, or empty.

    Returns:
        The error, and whether a retry may succeed within moments.
    """
    text = str(error)
    what = f"redis | {type(error).__name__}: {text}"
    if re.search(r"\bWRONGTYPE\b", text):
        remedy = "the key holds a value of another application: delete it"
        return StoreRefusedError(f"record={key!r} | {text}", reason="type", remedy=remedy, record=key), False
    for refusal in _REFUSALS:
        if isinstance(error, refusal.kinds) or re.search(rf"(?:^|[-\s])(?:{refusal.words})\b", text):
            return StoreRefusedError(what, reason=refusal.reason, remedy=refusal.remedy), refusal.passes
    if isinstance(error, _PASSING) or _MOVING in text:
        return StoreUnavailableError(what), True
    if isinstance(error, ResponseError):
        return StoreRefusedError(what, reason="request", remedy="see the log of the server or of the proxy before it"), False
    return StoreRefusedError(what, reason="client", remedy="the client or the source of its credentials fails"), False
