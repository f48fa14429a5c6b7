"""Durable table in Amazon DynamoDB."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from strands_manga_memory.arguments import Seconds, check_method, checked
from strands_manga_memory.exceptions import StoreError, StoreRefusedError, StoreUnavailableError
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.stores.dynamodb_requests import (
    MISSING,
    NOT_MET,
    attributes_of,
    check_answers,
    error_code,
    expression_of,
    item_of,
    key_names,
    package_error,
    table_definition,
    value_of,
)
from strands_manga_memory.stores.table import (
    SESSIONS,
    Condition,
    Item,
    Key,
    TableSchema,
    Write,
    check_transaction,
    key_of,
    key_of_write,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_CREATE_SECONDS = 120.0
"""Seconds to wait for a new table."""

_GETS, _WRITES = 100, 25  # DynamoDB's limits on one request
_RANDOM = random.Random()  # noqa: S311 - jitter; separate from the application's random numbers
_RANGES = {
    (): "",
    (":first",): " AND #s >= :first",
    (":last",): " AND #s <= :last",
    (":first", ":last"): " AND #s BETWEEN :first AND :last",
}


class DynamoDBTable:
    """Durable table in Amazon DynamoDB.

    Pass a client that does not retry, such as that of ``dynamodb_client``. This class itself
    retries requests after throttling, server errors and broken connections, with random waits.

    A conditional write may succeed although its response is lost. The retry then finds that the
    condition is no longer met, and the write returns False. After False, callers must therefore
    read the record and compare it with the record that they tried to write. A transaction is never
    executed twice, because all attempts of one ``transact`` call send the same token.

    Reads return whole numbers as ``int``, other numbers as ``float``, and sets as lists.

    Args:
        client: ``boto3.client("dynamodb")``. Its timeouts limit one attempt.
        schema: Names of the keys and indexes. Default ``SESSIONS``.
        name: Name of the table. Default ``schema.name``.
        deadline: Seconds after the start of a request during which failed attempts are retried.
            Default 1. In a batch, the deadline begins again with each request of 100 reads or 25
            writes, and after DynamoDB has processed a part of a request.

    Attributes:
        schema: Names of the keys and indexes.
        client: The boto3 client.
        name: Name of the table.

    Raises:
        ValueError: ``deadline`` is negative.
    """

    @checked
    def __init__(
        self,
        client: DynamoDBClient,
        schema: TableSchema = SESSIONS,
        *,
        name: str | None = None,
        deadline: Seconds = 1.0,
    ) -> None:
        self.schema = schema
        self.name = name or schema.name
        self.client = check_method(
            "client", client, "get_item(**request)", 'boto3.client("dynamodb")'
        )
        check_answers(client)
        self._deadline = deadline
        renew_in_child(self)

    def __repr__(self) -> str:
        return f"DynamoDBTable({self.name!r})"

    def with_schema(self, schema: TableSchema) -> DynamoDBTable:
        """Return an object for another DynamoDB table, with the given schema and the same client.

        The schema names the table and its key attributes. If there is no such table, this method
        does not create it: see ``create_if_missing``.
        """
        return DynamoDBTable(self.client, schema)

    def create_if_missing(self) -> None:
        """Create the DynamoDB table with its indexes if it is missing, and enable its TTL.

        A new table is billed on demand. An existing table gets no new indexes.

        Raises:
            StoreError: An existing table has other keys than the schema. Or the TTL cannot be
                enabled, for example because it is enabled for another attribute.
            StoreUnavailableError: The table is not ready within 120 seconds.
        """
        status = self._status()
        if not status:
            self._call(
                "create_table",
                expected="ResourceInUseException",
                **table_definition(self.schema, self.name),
            )
            status = self._status()
        end, pause = time.monotonic() + _CREATE_SECONDS, 0.1
        while status not in ("ACTIVE", "UPDATING"):
            if time.monotonic() >= end:
                raise StoreUnavailableError(
                    f"table=<{self.name}> | the table is not active after {_CREATE_SECONDS:.0f} s"
                    f" (status {status or 'unknown'}); call create_if_missing() again"
                )
            time.sleep(pause)
            pause, status = min(2.0, 2 * pause), self._status()
        self._enable_ttl()

    def get(self, partition: str, sort: str) -> Item | None:
        """Return the record of a partition and a sort value, or None if it is missing."""
        answer = self._call(
            "get_item",
            TableName=self.name,
            Key=self._key_attributes((partition, sort)),
            ConsistentRead=True,
        )
        return item_of(answer["Item"]) if "Item" in answer else None

    def batch_get(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Read many records, up to 100 per request.

        The result maps each existing key to its record.
        """
        keys_read = [self._key_attributes(key) for key in dict.fromkeys(keys)]
        found: dict[Key, Item] = {}
        for answer in self._batch("batch_get_item", keys_read):
            for stored in answer["Responses"].get(self.name, ()):
                item = item_of(stored)
                found[key_of(self.schema, item)] = item
        return found

    def put(self, item: Item, *, when: Condition | None = None, scrub: bool = True) -> bool:
        """Write a record, in place of an earlier record with the same key.

        ``when`` is a condition on the stored record. If the condition is not met, nothing is
        written, and the result is False. ``scrub`` (see ``Table.put``) has no effect.
        """
        key_of(self.schema, item)
        return self._changed("put_item", when, Item=attributes_of(item))

    def delete(self, partition: str, sort: str, *, when: Condition | None = None) -> bool:
        """Delete a record, if there is one.

        ``when`` is a condition on the stored record. If the condition is not met, nothing is
        deleted, and the result is False.
        """
        return self._changed("delete_item", when, Key=self._key_attributes((partition, sort)))

    def batch_write(self, *, puts: Sequence[Item] = (), deletes: Sequence[Key] = ()) -> None:
        """Write and delete many records without conditions, with up to 25 writes per request.

        A key with a put is not deleted. Its last put counts.
        """
        requests: dict[Key, dict[str, Any]] = {
            key: {"DeleteRequest": {"Key": self._key_attributes(key)}} for key in deletes
        }
        for item in puts:
            requests[key_of(self.schema, item)] = {"PutRequest": {"Item": attributes_of(item)}}
        for _ in self._batch("batch_write_item", requests.values()):
            pass

    def query(
        self,
        partition: str,
        *,
        first: str | None = None,
        last: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
    ) -> Iterator[Item]:
        """Yield the records of a partition, in the order of their sort values.

        Only records whose sort value is between ``first`` and ``last`` are returned. DynamoDB
        returns results in pages. Each page is requested when the iteration reaches it.
        """
        # DynamoDB rejects an empty key, and no key sorts before it
        bounds = ({":first": first} if first else {}) | ({} if last is None else {":last": last})
        if last == "" or (len(bounds) == 2 and bounds[":first"] > bounds[":last"]):
            return
        names = {"#p": self.schema.partition} | ({"#s": self.schema.sort} if bounds else {})
        request: dict[str, Any] = {
            "TableName": self.name,
            "KeyConditionExpression": "#p = :p" + _RANGES[tuple(bounds)],
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {
                mark: value_of(bound) for mark, bound in {":p": partition, **bounds}.items()
            },
            "ScanIndexForward": not reverse,
            "ConsistentRead": True,
        }
        if attributes is not None:
            wanted = dict.fromkeys((self.schema.partition, self.schema.sort, *attributes))
            names.update((f"#a{number}", name) for number, name in enumerate(wanted))
            request["ProjectionExpression"] = ", ".join(
                f"#a{number}" for number in range(len(wanted))
            )
        while limit is None or limit > 0:
            if limit is not None:
                request["Limit"] = limit
            answer = self._call("query", **request)
            for stored in answer["Items"]:
                yield item_of(stored)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            limit = None if limit is None else limit - len(answer["Items"])

    def transact(self, writes: Sequence[Write]) -> bool:
        """Execute at most 100 writes, of at most 4 MB in total, in one transaction.

        Returns:
            Whether the writes were executed. If a condition is not met, no write is executed.

        Raises:
            ValueError: There are more than 100 writes, or two of the same record.
        """
        check_transaction(self.schema, writes)
        if not writes:
            return True
        actions: list[dict[str, Any]] = []
        for write in writes:
            what = {"TableName": self.name, **expression_of(write.when, self.schema.partition)}
            if write.item is not None:
                actions.append({"Put": {"Item": attributes_of(write.item), **what}})
            else:
                kind = "ConditionCheck" if write.is_check else "Delete"
                key = self._key_attributes(key_of_write(self.schema, write))
                actions.append({kind: {"Key": key, **what}})
        request = {"TransactItems": actions, "ClientRequestToken": uuid.uuid4().hex}
        return self._call("transact_write_items", expected=NOT_MET, **request) is not None

    def renew_after_fork(self) -> None:
        """Replace the client's connections in a forked process, because the parent uses them."""
        _replace_connections(self.client)

    def close(self) -> None:
        """Close the connections to DynamoDB. The next use of this object opens new ones."""
        self.client.close()

    def _status(self) -> str:
        answer = self._call("describe_table", TableName=self.name, expected=MISSING)
        if not answer:
            return ""
        have = key_names(answer["Table"])
        want = key_names(table_definition(self.schema, self.name))
        if have != want:
            raise StoreError(
                f"table=<{self.name}> | its keys are {', '.join(have)}, not {', '.join(want)}: name"
                " another table, because the keys of a table cannot be changed"
            )
        return str(answer["Table"]["TableStatus"])

    def _enable_ttl(self) -> None:
        # Another process may enable the TTL between the two calls; the second pass sees this.
        for expected in ("ValidationException", ""):
            answer = self._call("describe_time_to_live", TableName=self.name)
            ttl = answer["TimeToLiveDescription"]
            if ttl["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
                wanted = {"Enabled": True, "AttributeName": self.schema.ttl}
                request = {"TableName": self.name, "TimeToLiveSpecification": wanted}
                if self._call("update_time_to_live", expected=expected, **request) is not None:
                    return
            elif ttl["AttributeName"] != self.schema.ttl:
                raise StoreError(
                    f"table=<{self.name}> | its TTL is enabled for the attribute"
                    f" {ttl['AttributeName']!r}; disable it, so that it can be enabled for"
                    f" {self.schema.ttl!r}"
                )
            else:
                return

    def _key_attributes(self, key: Key) -> dict[str, Any]:
        place = {self.schema.partition: {"S": key[0]}, self.schema.sort: {"S": key[1]}}
        place.pop("", None)  # a table without a sort key
        return place

    def _changed(self, operation: str, when: Condition | None, **record: Any) -> bool:
        request = {"TableName": self.name, **expression_of(when, self.schema.partition), **record}
        return self._call(operation, expected=NOT_MET, **request) is not None

    def _batch(self, operation: str, entries: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """Send keys to read, or write requests, in batches, and yield each response.

        If DynamoDB processes only a part of a batch, the next batch begins with the rest.
        """
        reads = operation == "batch_get_item"
        left = "UnprocessedKeys" if reads else "UnprocessedItems"
        most = _GETS if reads else _WRITES
        waiting, pauses = iter(entries), self._pauses()
        rest: Any = []
        while batch := [*rest, *islice(waiting, most - len(rest))]:
            wanted = {"Keys": batch, "ConsistentRead": True} if reads else batch
            answer = self._call(operation, RequestItems={self.name: wanted})
            yield answer
            rest = answer.get(left, {}).get(self.name, [])
            if reads and rest:
                rest = rest["Keys"]
            if len(rest) < len(batch):
                pauses = self._pauses()
            if rest:
                pause = next(pauses, None)
                if pause is None:
                    raise StoreUnavailableError(
                        f"table=<{self.name}> | {len(rest)} records of a batch are throttled;"
                        " raise the table's capacity, or try again later"
                    )
                time.sleep(pause)

    def _call(self, operation: str, *, expected: str = "", **request: Any) -> Any:
        """Send a request to DynamoDB, with retries after temporary errors, and return the response.

        Return None if DynamoDB answers with the error code ``expected``.
        """
        pauses = self._pauses()
        while True:
            try:
                return getattr(self.client, operation)(**request)
            except Exception as error:  # noqa: BLE001 - a source of credentials may raise anything
                if expected and error_code(error) == expected:
                    return None
                problem = package_error(error, f"table=<{self.name}>")
                problem.__cause__ = error
            may_pass = isinstance(problem, StoreUnavailableError) and not isinstance(
                problem, StoreRefusedError
            )
            pause = next(pauses, None) if may_pass else None
            if pause is None:
                raise problem
            time.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        end = time.monotonic() + self._deadline
        for tries in count():
            pause = min(0.5, 0.025 * 2**tries) * (0.5 + _RANDOM.random() / 2)
            if time.monotonic() + pause >= end:
                return
            yield pause


def _replace_connections(client: Any) -> None:
    # ``close`` would wait forever for a lock that another thread of the parent held at the fork.
    try:
        session = client._endpoint.http_session  # noqa: SLF001 - boto3 has no public way
        managers = [session._manager, *session._proxy_managers.values()]  # noqa: SLF001
    except AttributeError:  # another kind of client
        client.close()
        return
    for manager in managers:
        _inherited.append(manager.pools)
        manager.pools = type(manager.pools)()


_inherited: list[Any] = []
"""Connections of the parent process. Without a reference, they would be closed, which may block."""
