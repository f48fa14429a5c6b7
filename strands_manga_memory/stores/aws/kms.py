"""KmsKeys: data keys of tenants, made and unwrapped by AWS KMS, kept wrapped in a table."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from strands_manga_memory.exceptions import ConflictError, StoreRefusedError, StoreUnavailableError
from strands_manga_memory.stores.aws.aws_errors import may_pass, translated
from strands_manga_memory.stores.encoding.keys import DataKey, escaped_tenant
from strands_manga_memory.stores.table import ABSENT, Item, Table, Write

_PREFIX, _DESTROYED = "key#", "~destroyed"
_TRIES = 10

_GONE = {
    "DisabledException",
    "IncorrectKeyException",
    "InvalidCiphertextException",
    "KMSInvalidStateException",
    "NotFoundException",
}
"""KMS cannot unwrap the key: its own key is disabled, deleted or another one, or what was stored is damaged."""

_PASSING = {"DependencyTimeoutException", "KeyUnavailableException", "KMSInternalException", "LimitExceededException"}


class _NoneOpensError(KeyError):
    """A tenant has keys, and none of them opens."""


class _Newest(NamedTuple):
    """The newest key that opens, its number, and when it was made, in seconds since 1970."""

    number: int
    key: DataKey
    made: float


class KmsKeys:
    """A ``KeyProvider``: each tenant's data keys, wrapped by one KMS key, in a table of the package.

    All processes share a tenant's present data key, so a process asks KMS once for each data key, not for each record. A key's
    record is ``keys/<tenant>``, ``key#<number>``; KMS binds it to both by its encryption context (``tenant``, ``key``), so one
    tenant's cannot be put in another's place, and ``kms:EncryptionContext:tenant`` can limit who uses it.

    Keys that are in use are in the memory of this process for ``seconds``: that long after ``rotate`` others go on with the
    earlier key, and that long after ``destroy`` they can still read.

    Args:
        client: ``boto3.client("kms")``, best with its retries off, as requests are repeated here.
        key_id: Id, ARN or alias of the KMS key that wraps.
        former: Those that wrapped earlier data keys, and unwrap them still. No other key is ever used, whatever the table
            says. A key may be named in another way than when it wrapped.
        table: Where wrapped keys are kept, such as the durable tier; they have no time to live.
        seconds: How long a key is kept in memory. Default 300.
        most: Keys that are kept in memory. Default 1,000.
        rotate_after: Seconds after which a new data key is made. Default 90 days.
        deadline: Seconds in which a failed request is repeated. Default 1.
        clock: Seconds since 1970.
        sleep: Waits some seconds.

    Raises:
        ValueError: A number is not above 0, or ``key_id`` is empty.
    """

    def __init__(
        self,
        client: Any,
        *,
        key_id: str,
        table: Table,
        former: Sequence[str] = (),
        seconds: float = 300.0,
        most: int = 1_000,
        rotate_after: float = 90 * 86_400.0,
        deadline: float = 1.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not key_id:
            raise ValueError(f"key_id must name a KMS key, got {key_id!r:.80}")
        numbers = {"seconds": seconds, "most": most, "rotate_after": rotate_after, "deadline": deadline}
        for name, value in numbers.items():
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r:.80}")
        self._client = client
        self._kms_key = key_id
        self._kms_keys = (key_id, *former)
        self._table = table
        self._seconds = seconds
        self._most = most
        self._rotate_after = rotate_after
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._sort = table.schema.sort
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[float, DataKey]] = OrderedDict()

    def __repr__(self) -> str:
        """Return the name of the KMS key."""
        return f"KmsKeys({self._kms_key!r}, table={self._table!r})"

    def current(self, tenant: str) -> DataKey:
        """Return the tenant's present key; the first one is made here.

        Raises:
            KeyError: The tenant's keys are destroyed, or KMS has lost the key that wrapped them.
            StoreUnavailableError: KMS or the table does not answer.
            StoreError: KMS does not allow it.
        """
        kept = self._remembered(tenant, "")
        if kept is not None:
            return kept
        newest = self._newest(tenant, self._rows(tenant))
        is_fresh = newest is not None and newest.made + self._rotate_after > self._clock()
        key = newest.key if newest is not None and is_fresh else self._made(tenant, newest)
        self._remember(tenant, "", key)
        return key

    def get(self, tenant: str, key_id: str) -> bytes:
        """Return a key of the tenant; raises as ``current`` does, and ``KeyError`` if there is no such key."""
        kept = self._remembered(tenant, key_id)
        if kept is None:
            row = self._table.get(_partition(tenant), f"{_PREFIX}{key_id}")
            if row is None:
                raise KeyError(key_id)
            kept = self._unwrapped(tenant, row)
        return kept.key

    def rotate(self, tenant: str | None) -> str:
        """Make a new key, with which this process encrypts from now on and the others within ``seconds``; return its name.

        Raises:
            KeyError: The tenant's keys are destroyed.
            ConflictError: Others keep making keys for the tenant.
        """
        escaped = escaped_tenant(tenant)
        newest = None
        with suppress(_NoneOpensError):  # one that can be read is wanted
            newest = self._newest(escaped, self._rows(escaped))
        key = self._made(escaped, newest)
        self._remember(escaped, "", key)
        return key.id

    def destroy(self, tenant: str | None) -> int:
        """Delete every key of a tenant, and note that it is to have none; return how many there were.

        Nothing that they encrypted can be read any more, once backups of the table that still hold them are gone too.
        """
        escaped = escaped_tenant(tenant)
        partition, (first, second) = _partition(escaped), (self._table.schema.partition, self._sort)
        # The mark first: whoever is about to store a new key compares with it.
        self._table.put({first: partition, second: _DESTROYED, "at": self._clock()})
        rows = [str(row[second]) for row in self._table.query(partition, attributes=[])]
        keys = [(partition, sort) for sort in rows if sort.startswith(_PREFIX)]
        self._table.batch_write(deletes=keys)
        with self._lock:
            for kept in [kept for kept in self._kept if kept[0] == escaped]:
                del self._kept[kept]
        return len(keys)

    # Inside

    def _rows(self, tenant: str) -> dict[int, Item]:
        """Return the records of a tenant's keys by number; raise ``KeyError`` if it is to have none."""
        rows = list(self._table.query(_partition(tenant)))
        if any(row[self._sort] == _DESTROYED for row in rows):
            raise KeyError(f"the keys of the tenant {tenant!r} are destroyed")
        return {_number(row, self._sort): row for row in rows if _number(row, self._sort)}

    def _newest(self, tenant: str, rows: Mapping[int, Item]) -> _Newest | None:
        """Return the newest key that opens, None if there is no key: one that is damaged, or planted, is passed over."""
        problem: Exception | None = None
        for number in sorted(rows, reverse=True):
            try:
                return _Newest(number, self._unwrapped(tenant, rows[number]), float(rows[number]["made"]))
            except (KeyError, TypeError, ValueError) as error:
                problem = problem or error
        if problem is None:
            return None
        raise _NoneOpensError(*problem.args) from problem

    def _made(self, tenant: str, newest: _Newest | None) -> DataKey:
        """Make the key after ``newest``, under the first number that nobody has; if someone else was first, take his."""
        partition, after = self._table.schema.partition, 0 if newest is None else newest.number
        for _ in range(_TRIES):
            rows = self._rows(tenant)
            with suppress(_NoneOpensError):
                theirs = self._newest(tenant, rows)
                if theirs is not None and theirs.number > after:
                    return theirs.key
            id_ = f"{next(number for number in itertools.count(after + 1) if number not in rows):06d}"
            answer = self._ask(
                "generate_data_key", KeyId=self._kms_key, KeySpec="AES_256", EncryptionContext=_context(tenant, id_)
            )
            row = {
                partition: _partition(tenant),
                self._sort: f"{_PREFIX}{id_}",
                "wrapped": answer["CiphertextBlob"],
                "kms_key": self._kms_key,
                "made": self._clock(),
            }
            if self._table.transact([Write(item=row, when=ABSENT), Write(key=(_partition(tenant), _DESTROYED), when=ABSENT)]):
                key = DataKey(id_, answer["Plaintext"])
                self._remember(tenant, id_, key)
                return key
        raise ConflictError(f"record={_partition(tenant)!r} keeps changing; try again")

    def _unwrapped(self, tenant: str, row: Item) -> DataKey:
        id_ = str(row[self._sort]).removeprefix(_PREFIX)
        kept = self._remembered(tenant, id_)
        if kept is None:
            self._remember(tenant, id_, kept := DataKey(id_, self._plain(tenant, id_, row)))
        return kept

    def _plain(self, tenant: str, id_: str, row: Item) -> bytes:
        """Unwrap a key with one of our KMS keys, best that which wrapped it: what others' wrapped, others can read.

        KMS decrypts with the key that it is given, or refuses (``IncorrectKeyException``).
        """
        wrapped, by = row.get("wrapped"), row.get("kms_key")
        if not isinstance(wrapped, bytes):
            raise KeyError(f"the record of the key {id_!r} is damaged")
        problems = []
        for name in sorted(self._kms_keys, key=lambda name: name != by):
            try:
                answer = self._ask("decrypt", CiphertextBlob=wrapped, KeyId=name, EncryptionContext=_context(tenant, id_))
            except KeyError as error:
                problems.append(error)
            else:
                return bytes(answer["Plaintext"])
        raise KeyError(
            f"the key {id_!r} was wrapped by {by!r:.200}; neither key_id nor one of former unwraps it: {problems[0].args[0]}"
        ) from problems[0]

    def _remembered(self, tenant: str, id_: str) -> DataKey | None:
        now = self._clock()
        with self._lock:
            until, key = self._kept.get((tenant, id_), (0.0, None))
            if key is not None and now < until <= now + self._seconds:
                self._kept.move_to_end((tenant, id_))
                return key
            self._kept.pop((tenant, id_), None)
            return None

    def _remember(self, tenant: str, id_: str, key: DataKey) -> None:
        with self._lock:
            self._kept[tenant, id_] = self._clock() + self._seconds, key
            self._kept.move_to_end((tenant, id_))
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def _ask(self, operation: str, **request: Any) -> Any:
        end, pause = self._clock() + self._deadline, 0.025
        while True:
            try:
                return getattr(self._client, operation)(**request)
            except Exception as error:
                problem = _translated(error)
                if isinstance(problem, StoreRefusedError | KeyError) or self._clock() + pause >= end:
                    raise problem from error
            self._sleep(pause)
            pause *= 2


def _number(row: Item, sort: str) -> int:
    """Return which of a tenant's keys a record is; 0 if it is none."""
    name = str(row[sort])
    digits = name.removeprefix(_PREFIX)
    return int(digits) if name.startswith(_PREFIX) and digits.isdecimal() and digits.isascii() and len(digits) < 1000 else 0


def _partition(tenant: str) -> str:
    return f"keys/{tenant}"  # no session id and no user id holds a slash


def _context(tenant: str, key_id: str) -> dict[str, str]:
    return {"tenant": tenant or "/", "key": key_id}


def _translated(error: Exception) -> Exception:
    code = str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__
    if code in _GONE:
        return KeyError(f"KMS cannot unwrap it: {code}")
    problem = translated(error, "kms")
    if code in _PASSING or "Throttl" in code or may_pass(problem):
        return StoreUnavailableError(f"KMS does not answer: {code}")
    remedy = getattr(problem, "remedy", "")
    if "AccessDenied" in code:
        remedy = "allow kms:GenerateDataKey and kms:Decrypt on the key"
    return StoreRefusedError(f"KMS refuses the request: {code}", reason="key", remedy=remedy)
