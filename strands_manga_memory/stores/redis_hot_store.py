"""Hot store in Redis or Valkey, its client, and conversion of the client's errors."""

from __future__ import annotations

import hashlib
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import chain
from math import ceil
from typing import Any, NamedTuple, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    ClusterError,
    ConnectionError,  # noqa: A004
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)
from redis.retry import Retry

from strands_manga_memory.arguments import Seconds, checked, with_repr
from strands_manga_memory.exceptions import (
    CorruptRecordError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from strands_manga_memory.stores.hot import DELETED, HotRecord, HotWrite

_RANDOM = random.Random()  # noqa: S311 - jitter; separate from the application's random numbers


class _Script(NamedTuple):
    text: str
    sha: str


_, *_parts = re.split(
    r"^--- (\w+)\n",
    files(__package__).joinpath("redis_scripts.lua").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
_LUA = dict(zip(_parts[::2], _parts[1::2], strict=True))


def _script(*parts: str) -> _Script:
    text = "".join(_LUA[part] for part in parts)
    return _Script(text, _digest(text.encode()))


def _digest(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


_LOAD = _script("PARSING", "CONVERSATION", "LOAD")
_WRITE = _script("PARSING", "CONVERSATION", "WRITE")
_PUT_TOMBSTONE = _script("PARSING", "PUT_TOMBSTONE")
_CLAIM = _script("PARSING", "CONVERSATION", "CLAIM")
_DROP = _script("PARSING", "CONVERSATION", "DROP")
_NOW = _script("NOW")
_REPLACE = _script("REPLACE")

BUCKETS = 1024
"""Number of groups of conversations. Each group has a hash tag and an index by expiry."""

_BUCKETS_A_TRIP = 64
_Answer = TypeVar("_Answer")


@with_repr("_prefix", "_deadline")
class RedisHotStore:
    """Store of the conversations in use, in Redis or Valkey.

    All synchronous clients of redis-py can be used: standalone, Sentinel and Cluster. Conversations
    expire by the server's clock. Each method except ``expired`` is one atomic request.

    In a cluster, related keys must be on the same node. The keys of conversations and of other
    values are therefore distributed over 1,024 groups (buckets), by the CRC-32 of their names. The
    bucket ``NNNN`` has these keys:

    - Conversation: ``prefix:{bNNNN}:c:conversation``.
    - Index of the bucket's conversations by expiry time: ``prefix:{bNNNN}:x``.
    - Value: ``prefix:{bNNNN}:v:name``.

    Pass a client that does not retry, because ``claim`` and ``drop`` must be sent only once. This
    class itself retries the other operations, with random waits.

    Args:
        client: ``redis.Redis`` (also from ``Sentinel.master_for``) or
            ``redis.cluster.RedisCluster``, with ``decode_responses`` off. Its socket timeout limits
            one attempt.
        prefix: First part of every key. Default ``"smm"``.
        deadline: Seconds after the start of an operation during which failed attempts are retried.
            Default 0.05.
        grace: Seconds that a conversation stays readable after it has expired, so that a clean-up
            job can summarize it. Default 3,600.

    Attributes:
        client: The redis-py client.

    Raises:
        ValueError: ``client`` is asynchronous or decodes responses, ``prefix`` is empty or contains
            a brace, or ``deadline`` or ``grace`` is negative.
    """

    survives_process = True

    @checked
    def __init__(
        self,
        client: redis.Redis | RedisCluster,
        *,
        prefix: str = "smm",
        deadline: Seconds = 0.05,
        grace: Seconds = 3600.0,
    ) -> None:
        if client.get_connection_kwargs().get("decode_responses"):
            raise ValueError(
                "client must return bytes, got decode_responses=True; pass decode_responses=False"
            )
        if not prefix or set(prefix) & set("{}"):
            raise ValueError(
                f"prefix must be a non-empty string without braces, got {prefix!r:.80}"
            )
        self.client: Any = client
        self._prefix = prefix
        self._deadline = deadline
        self._grace = _milliseconds(grace)

    def load(
        self, conversation: str, fields: Sequence[str] | None, *, touch: bool = True
    ) -> HotRecord | None:
        """Read a conversation with some or all of its fields."""
        names = ["*"] if fields is None else fields
        return self._record(conversation, _LOAD, int(touch), self._grace, *names)

    def write(self, conversation: str, write: HotWrite) -> bool:
        """Write fields of a conversation, if the conversation has not changed since it was read.

        Return False if the stored epoch and version are not those in ``HotWrite.expect``.
        """
        expected = write.expect or ("-", "-")
        times = _milliseconds(write.ttl), self._grace
        counts = int(write.replace), len(write.removed)
        control = " ".join(map(str, (*expected, write.epoch, write.version, *times, *counts)))
        fields = chain.from_iterable(write.fields.items())
        return bool(
            self._run_on_conversation(conversation, _WRITE, control, *write.removed, *fields)[1]
        )

    def put_tombstone(self, conversation: str, *, ttl: float) -> int:
        """Replace a conversation by a tombstone (record of its deletion), and return its epoch.

        The epoch of a conversation grows by 1 each time the conversation is ended or deleted.
        """
        _, newest = self._run_on_conversation(conversation, _PUT_TOMBSTONE, _milliseconds(ttl))
        return int(newest)

    def expired(self, *, limit: int = 100) -> Iterator[str]:
        """Yield the names of at most ``limit`` expired conversations that the store still keeps.

        The search begins at a random bucket (group of conversations with one expiry index), and
        reads 64 buckets per request. An agent may use a returned conversation again at any time.
        ``claim`` then returns None.
        """
        start = _RANDOM.randrange(BUCKETS)
        now = int(self._run_script(_NOW, [self._index(start)], ()))
        for first in range(start, start + BUCKETS, _BUCKETS_A_TRIP):
            if limit <= 0:
                return
            indexes = (self._index(first + offset) for offset in range(_BUCKETS_A_TRIP))
            members = self._pipelined(
                [("ZRANGEBYSCORE", index, "-inf", now, "LIMIT", 0, limit) for index in indexes]
            )
            names = [name.decode(errors="replace") for bucket in members for name in bucket]
            states = self._pipelined([("HGET", self._key(name, "c"), "s") for name in names])
            for name, state in zip(names, states, strict=True):
                if state is None:  # the conversation itself is gone
                    with suppress(CorruptRecordError):  # a damaged conversation stays in the index
                        self.claim(name)  # removes a missing conversation from the index
                elif state != DELETED.encode() and limit > 0:
                    limit -= 1
                    yield name

    def claim(
        self, conversation: str, *, lease: float = 60.0, expired_only: bool = True
    ) -> HotRecord | None:
        """Reserve a conversation for the calling process, which then summarizes and removes it.

        The request is not retried. If only the response is lost, the conversation stays reserved,
        and can be claimed again after ``lease`` seconds.
        """
        return self._record(
            conversation, _CLAIM, _milliseconds(lease), int(expired_only), again=False
        )

    def drop(self, conversation: str, *, expect: tuple[int, int]) -> bool:
        """Remove a conversation reserved by ``claim``, unless it has changed since the claim.

        The request is not retried.
        """
        return bool(self._run_on_conversation(conversation, _DROP, *expect, again=False)[1])

    def get_value(self, name: str) -> bytes | None:
        """Return the value stored under a name, or None if it is missing or has expired."""
        key = self._key(name, "v")
        found: bytes | None = self._call_with_retries(lambda: self.client.get(key), key=key)
        return found

    def put_value(self, name: str, value: bytes, *, ttl: float) -> None:
        """Store a value under a name for ``ttl`` seconds, in place of an earlier value."""
        key = self._key(name, "v")
        self._call_with_retries(lambda: self.client.set(key, value, px=_milliseconds(ttl)))

    def replace_value(self, name: str, value: bytes, *, expect: bytes | None, ttl: float) -> bool:
        """Store a value in one atomic step, if the stored value still equals ``expect``.

        The request contains only the hash of ``expect``, because the value may be long.
        """
        expected = "" if expect is None else _digest(expect)
        arguments = expected, value, _milliseconds(ttl) if ttl else 0
        return bool(self._run_script(_REPLACE, [self._key(name, "v")], arguments))

    def close(self) -> None:
        """Close the connections to Redis. The store stays usable, and opens new connections."""
        if isinstance(self.client, RedisCluster):
            # RedisCluster.close() would remove the default node.
            self.client.disconnect_connection_pools()  # type: ignore[no-untyped-call]
        else:
            self.client.close()

    def _record(
        self, conversation: str, script: _Script, *arguments: Any, again: bool = True
    ) -> HotRecord | None:
        answer = self._run_on_conversation(conversation, script, *arguments, again=again)
        if answer is None:
            return None
        _, epoch, version, state, ttl, expires_in, found = answer
        return HotRecord(
            epoch=int(epoch),
            version=int(version),
            state=state.decode(),
            ttl=int(ttl) / 1000,
            expires_in=int(expires_in) / 1000,
            fields={
                name.decode(errors="replace"): value
                for name, value in zip(found[::2], found[1::2], strict=True)
            },
        )

    def _pipelined(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        def call() -> list[Any]:
            with self.client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return cast("list[Any]", pipeline.execute())

        return self._call_with_retries(call)

    def _run_on_conversation(
        self, conversation: str, script: _Script, *arguments: Any, again: bool = True
    ) -> Any:
        key = self._key(conversation, "c")
        answer = self._run_script(
            script, [key, self._index(_bucket(conversation))], arguments, again=again
        )
        if answer is not None and answer[0] == b"corrupt":
            raise CorruptRecordError(
                f"record={key!r} is damaged: field {answer[1].decode()!r} is invalid", record=key
            )
        return answer

    def _run_script(
        self, script: _Script, keys: Sequence[str], arguments: Sequence[Any], *, again: bool = True
    ) -> Any:
        def call() -> Any:
            try:
                return self.client.evalsha(script.sha, len(keys), *keys, *arguments)
            except NoScriptError:  # a new server, a flush or a failover: EVAL loads the script
                return self.client.eval(script.text, len(keys), *keys, *arguments)

        return self._call_with_retries(call, key=keys[0], again=again)

    def _call_with_retries(
        self, call: Callable[[], _Answer], *, key: str = "", again: bool = True
    ) -> _Answer:
        end = time.monotonic() + self._deadline
        pause = 0.002
        while True:
            try:
                return call()
            except Exception as error:
                problem, may_pass = package_error(error, key)
                wait = pause * (0.5 + _RANDOM.random())
                if not again or not may_pass or time.monotonic() + wait >= end:
                    raise problem from error
                if isinstance(error, ReadOnlyError) and isinstance(self.client, redis.Redis):
                    # The server became a replica; new connections may lead to the new primary.
                    self.client.connection_pool.disconnect(inuse_connections=False)
            time.sleep(wait)
            pause *= 2

    def _key(self, conversation: str, kind: str) -> str:
        return f"{self._prefix}:{{b{_bucket(conversation):04d}}}:{kind}:{conversation}"

    def _index(self, bucket: int) -> str:
        return f"{self._prefix}:{{b{bucket % BUCKETS:04d}}}:x"


def _bucket(conversation: str) -> int:
    return zlib.crc32(conversation.encode()) % BUCKETS


def _milliseconds(seconds: float) -> int:
    return max(1, ceil(seconds * 1000))


def redis_client(url: str, *, is_cluster: bool = False) -> redis.Redis | RedisCluster:
    """Create a redis-py client with the settings that ``RedisHotStore`` needs.

    The client opens up to 50 connections and does not retry. The connect timeout is 2 s, and the
    socket timeout is 1 s.

    Args:
        url: URL of the server, or of any node of the cluster, in the format of redis-py. Query
            arguments of the URL replace the settings above.
        is_cluster: Whether the server is a node of a cluster.

    Raises:
        ValueError: The URL has an invalid argument.
        StoreUnavailableError: No node of the cluster is available.
    """
    settings: dict[str, Any] = {
        "max_connections": 50,
        "socket_connect_timeout": 2.0,
        "socket_timeout": 1.0,
        "retry": Retry(NoBackoff(), 0),
    }
    if not is_cluster:
        return redis.Redis.from_pool(
            redis.BlockingConnectionPool.from_url(url, timeout=1, **settings)
        )
    try:
        return RedisCluster.from_url(url, **settings)
    except (RedisError, RedisClusterException, OSError) as error:
        raise StoreUnavailableError(f"no node of the cluster answered: {error}") from error


class _RedisRefusal(NamedTuple):
    """Kind of Redis error whose cause an operator must remove, such as a wrong password.

    The regular expression ``words`` matches the error's class name or a word of its text.
    """

    reason: str
    words: str
    remedy: str
    passes: bool = True
    """Whether a retry may succeed within moments, for example during a failover."""


# The first match counts. redis-py or a script may wrap the server's error, so that only the text
# identifies it.
_REFUSALS = (
    _RedisRefusal(
        "authentication",
        r"Authentication\w*Error|AuthorizationError|ExternalAuthProviderError|WRONGPASS|NOAUTH|invalid"
        r" username-password pair",
        "user or password are wrong or outdated: configure the current ones",
        passes=False,
    ),
    _RedisRefusal(
        "permission",
        "NoPermissionError|NOPERM|ACL failure",
        "run ACL SETUSER as in guide/security.md, Least privilege, with ~smm:* as keys",
        passes=False,
    ),
    _RedisRefusal(
        "read-only",
        "ReadOnlyError|READONLY",
        "the server is a replica: connect to the primary",
    ),
    _RedisRefusal(
        "loading",
        "BusyLoadingError|LOADING",
        "the server loads its data: wait until it is ready",
    ),
    _RedisRefusal(
        "primary",
        "MasterDownError|MASTERDOWN",
        "the replica has lost its primary: restore the primary",
    ),
    _RedisRefusal(
        "cluster",
        "ClusterDownError|CLUSTERDOWN",
        "the cluster is incomplete: see CLUSTER INFO",
    ),
    _RedisRefusal(
        "cluster",
        "AskError|ClusterCrossSlotError|MOVED|CROSSSLOT",
        "the server is a node of a cluster: use redis+cluster://",
        passes=False,
    ),
    _RedisRefusal(
        "memory",
        "OutOfMemoryError|OOM",
        "the memory is full: raise maxmemory, or set maxmemory-policy volatile-ttl",
    ),
    _RedisRefusal(
        "clients",
        "max number of clients",
        "the server has too many clients: raise maxclients",
    ),
    _RedisRefusal("disk", "MISCONF", "the server cannot write to its disk: see its log"),
    _RedisRefusal(
        "replicas",
        "NOREPLICAS",
        "too few replicas are connected for a write: restore them",
    ),
    _RedisRefusal("script", "BUSY", "another script blocks the server: run SCRIPT KILL"),
)
_PASSING = (
    ClusterError,
    ConnectionError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
    OSError,
)
_MOVING = "access a non local key"  # error of a script whose slot is migrating to another node


def package_error(error: Exception, key: str = "") -> tuple[StoreError, bool]:
    """Return the ``StoreError`` for an error of redis-py, and whether a quick retry may succeed.

    ``key`` is the requested key, for the error message; empty if unknown.
    """
    text = str(error)
    what = f"redis | {type(error).__name__}: {text}"
    if re.search(r"\bWRONGTYPE\b", text):
        remedy = "another application uses the key: choose another prefix, or delete the key"
        what = f"record={key!r} | {text}"
        return StoreRefusedError(what, reason="type", remedy=remedy, record=key), False
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    for refusal in _REFUSALS:
        if re.search(rf"(?:^|[-\s])(?:{refusal.words})\b", f"{names} {text}"):
            refused = StoreRefusedError(what, reason=refusal.reason, remedy=refusal.remedy)
            return refused, refusal.passes
    if isinstance(error, _PASSING) or _MOVING in text:
        return StoreUnavailableError(what), True
    reason, remedy = "client", "check the client and the source of its credentials"
    if isinstance(error, ResponseError):
        reason, remedy = "request", "see the log of the server or of the proxy before it"
    return StoreRefusedError(what, reason=reason, remedy=remedy), False
