"""Requests to a DynamoDB table, with retries and jitter until a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from strands_manga_memory.exceptions import StoreError, StoreUnavailableError
from strands_manga_memory.stores.aws.aws_errors import code_of, may_pass, translated
from strands_manga_memory.stores.aws.dynamodb_values import item_of
from strands_manga_memory.stores.table import Item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_HAS_BODY = {"batch_get_item", "batch_write_item", "get_item", "query"}
"""Operations whose answer has a body."""


class DynamoDBRequests:
    """Sends the requests of one table.

    Args:
        client: The boto3 client, which must not retry.
        table: Name of the table.
        deadline: Seconds after the start of a request in which failed attempts are retried.
        clock: Seconds.
        sleep: Waits some seconds.
        rand: Returns a number from 0 to 1.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        deadline: float,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        rand: Callable[[], float],
    ) -> None:
        self.client = client
        self._table = table
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._rand = rand

    def pages(self, request: dict[str, Any], limit: int | None) -> Iterator[Item]:
        """Yield the records of a query, page by page, at most ``limit``."""
        while limit is None or limit > 0:
            answer = self.ask("query", **request, **({} if limit is None else {"Limit": limit}))
            for stored in answer["Items"]:
                yield item_of(stored)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            limit = None if limit is None else limit - len(answer["Items"])

    def batch(self, operation: str, entries: list[Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the answers to a batch; unprocessed entries are requested again.

        Raises:
            StoreUnavailableError: No further entry was processed within the deadline.
        """
        reads = operation == "batch_get_item"
        left = "UnprocessedKeys" if reads else "UnprocessedItems"
        pauses = self._pauses()
        while entries:
            wanted: Any = {"Keys": entries, "ConsistentRead": True} if reads else entries
            answer = self.ask(operation, RequestItems={self._table: wanted})
            yield answer
            rest: Any = answer.get(left, {}).get(self._table, ())
            rest = list(rest["Keys"]) if reads and rest else list(rest)
            if len(rest) < len(entries):
                pauses = self._pauses()
            entries = rest
            if entries:
                pause = next(pauses, None)
                if pause is None:
                    raise StoreUnavailableError(f"table=<{self._table}> | {len(entries)} records of a batch are throttled")
                self._sleep(pause)

    def ask(self, operation: str, **request: Any) -> Mapping[str, Any]:
        """Return the answer to a request without an expected error; see ``call``."""
        answer = self.call(operation, **request)
        assert answer is not None  # noqa: S101 - no error was expected
        return answer

    def call(self, operation: str, *, expected: str = "", **request: Any) -> Mapping[str, Any] | None:
        """Return the answer, or None for the ``expected`` error; retry temporary errors.

        Raises:
            StoreError: The request failed for another reason.
        """
        pauses = self._pauses()
        while True:
            problem: StoreError
            try:
                answer: Mapping[str, Any] = getattr(self.client, operation)(**request)
            except Exception as error:  # noqa: BLE001 - a source of credentials may raise anything
                if expected and code_of(error) == expected:
                    return None
                problem = translated(error, f"table=<{self._table}>")
                problem.__cause__ = error
            else:
                if operation not in _HAS_BODY or _is_whole(answer):
                    return answer
                problem = StoreUnavailableError(f"table=<{self._table}> | the answer was cut off")
            pause = next(pauses, None) if may_pass(problem) else None
            if pause is None:
                raise problem
            self._sleep(pause)

    def _pauses(self) -> Iterator[float]:
        end = self._clock() + self._deadline
        for tries in count():
            pause = min(0.5, 0.025 * 2**tries) * (0.5 + self._rand() / 2)
            if self._clock() + pause >= end:
                return
            yield pause


def _is_whole(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer has its body. If a connection ends within the headers, botocore returns an empty answer.

    An empty answer would look like a missing record. DynamoDB never sends an empty body.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders")
    if headers is None:  # the client does not use HTTP
        return True
    length = headers.get("content-length", "")
    return headers.get("transfer-encoding") == "chunked" or (length.isdigit() and int(length) > 0)
