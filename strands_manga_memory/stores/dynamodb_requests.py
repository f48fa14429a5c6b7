"""Requests to a DynamoDB table, with retries until a deadline, and conversion of errors and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    ParamValidationError,
)

from strands_manga_memory.exceptions import NO_TABLE, StoreError, StoreRefusedError, StoreUnavailableError
from strands_manga_memory.stores.table import Condition, Item, TableSchema

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOT_MET = "ConditionalCheckFailedException"
MISSING = "ResourceNotFoundException"

_PASSING = {  # error codes after which a retry may succeed
    "InternalFailure",
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}


class _Refusal(NamedTuple):
    reason: str
    codes: frozenset[str]
    remedy: str


_CREDENTIALS = "the credentials are missing, wrong or expired: renew them; those of a role are renewed automatically"
_REFUSALS = (
    _Refusal(
        "authentication",
        frozenset(
            {
                "ExpiredToken",
                "ExpiredTokenException",
                "IncompleteSignature",
                "IncompleteSignatureException",
                "InvalidAccessKeyId",
                "InvalidClientTokenId",
                "InvalidSignatureException",
                "MissingAuthenticationToken",
                "MissingAuthenticationTokenException",
                "NotSignedUp",
                "OptInRequired",
                "RequestExpired",
                "SignatureDoesNotMatch",
                "TokenRefreshRequired",
                "UnrecognizedClientException",
            }
        ),
        _CREDENTIALS,
    ),
    _Refusal(
        "permission",
        frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}),
        "grant its role the permissions of `strands-manga-memory permissions --print iam`",
    ),
    _Refusal("table", frozenset({MISSING, "TableNotFoundException"}), NO_TABLE),
    _Refusal("table", frozenset({"ResourceInUseException"}), "the table is being created or deleted: wait until it is active"),
)
_OF_THE_REQUEST = {  # error codes of invalid requests, which say nothing about the availability of the table
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationError",
    "ValidationException",
}


def code_of(error: Exception) -> str:
    """Return the error code from an error of the boto3 client; empty if the error is no response of DynamoDB.

    For a cancelled transaction, the result is the code of the reason for the cancellation.
    """
    if not isinstance(error, ClientError):
        return ""
    reasons = [reason.get("Code", "") for reason in error.response.get("CancellationReasons", ())]
    if "ConditionalCheckFailed" in reasons:
        return NOT_MET
    given = [reason for reason in reasons if reason not in ("", "None")]
    return given[0] if given else str(error.response.get("Error", {}).get("Code", ""))


def translated(error: Exception, where: str) -> StoreError:
    """Convert an error of the boto3 client, or of the source of its credentials, to an error of this package.

    ``where`` is the description of the request in the error message.
    """
    what = f"{where} | {error}"
    if isinstance(error, ClientError):
        return _answered(error, what)
    if isinstance(error, ConnectionError | HTTPClientError | OSError):
        return StoreUnavailableError(what)
    if isinstance(error, ParamValidationError):
        return StoreError(what)
    if isinstance(error, BotoCoreError):
        return StoreRefusedError(what, reason="authentication", remedy=_CREDENTIALS)
    return StoreRefusedError(what, reason="client", remedy="the client or the source of its credentials fails")


def may_pass(error: StoreError) -> bool:
    """Return whether a request that failed with this error may succeed if it is repeated within moments."""
    return isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError)


def _answered(error: ClientError, what: str) -> StoreError:
    """Convert an error response of DynamoDB to an error of this package with the message ``what``."""
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _PASSING or status >= 500:
        return StoreUnavailableError(what)
    if code in _OF_THE_REQUEST:
        return StoreError(what)
    for refusal in _REFUSALS:
        if code in refusal.codes:
            return StoreRefusedError(what, reason=refusal.reason, remedy=refusal.remedy)
    return StoreRefusedError(what, reason=code or "request", remedy="see the AWS documentation of this error code")


_HAS_BODY = {"batch_get_item", "batch_write_item", "get_item", "query"}
"""Operations whose answer has a body."""


def dynamodb_client(*, region: str | None = None, endpoint: str | None = None) -> DynamoDBClient:
    """Return a boto3 client for ``DynamoDBTable``.

    The client does not retry, and opens up to 50 connections. The connect timeout is 2 s, and the read timeout is 1 s. The user
    agent contains the name of this package.

    Args:
        region: AWS region. Default: that of the AWS configuration.
        endpoint: URL of the service. Default: that of AWS.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=2,
        read_timeout=1,
        tcp_keepalive=True,
        parameter_validation=False,  # DynamoDB validates as well, and all requests are built by this package
        max_pool_connections=50,
        user_agent_extra="strands-manga-memory",
    )
    return boto3.session.Session().client("dynamodb", region_name=region, endpoint_url=endpoint, config=config)


class DynamoDBRequests:
    """Sender of requests to one DynamoDB table.

    Args:
        client: The boto3 client, which must not retry.
        table: Name of the table.
        deadline: Seconds from the start of a request during which failed attempts are retried.
        clock: Function that returns monotonic seconds, for the deadline.
        sleep: Function that waits for the given seconds.
        rand: Function that returns a random number from 0 to 1, for the waits between attempts.
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
        """Send the arguments ``request`` of a query, and yield at most ``limit`` records; all if ``limit`` is None.

        Further pages are requested when they are needed.
        """
        while limit is None or limit > 0:
            answer = self.ask("query", **request, **({} if limit is None else {"Limit": limit}))
            for stored in answer["Items"]:
                yield item_of(stored)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            limit = None if limit is None else limit - len(answer["Items"])

    def batch(self, operation: str, entries: list[Any]) -> Iterator[Mapping[str, Any]]:
        """Send a batch of reads or writes, and yield the responses. Entries that DynamoDB did not process are sent again.

        Args:
            operation: ``batch_get_item`` or ``batch_write_item``.
            entries: Keys to read, or write requests.

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
        """Send a request to DynamoDB, with retries after temporary errors, and return the response.

        Args:
            operation: Name of the boto3 method, such as ``get_item``.
            **request: Arguments of the method.

        Raises:
            StoreError: The request failed.
        """
        answer = self.call(operation, **request)
        assert answer is not None  # noqa: S101 - no error was expected
        return answer

    def call(self, operation: str, *, expected: str = "", **request: Any) -> Mapping[str, Any] | None:
        """Send a request to DynamoDB, with retries after temporary errors, and return the response.

        Args:
            operation: Name of the boto3 method, such as ``put_item``.
            expected: Error code after which the result is None. Default: no error is expected.
            **request: Arguments of the method.

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
    """Return whether a response of DynamoDB has a body.

    If a connection ends within the headers, botocore returns an empty response, which would look like a missing record.
    DynamoDB never sends an empty response.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders")
    if headers is None:  # the client does not use HTTP
        return True
    length = headers.get("content-length", "")
    return headers.get("transfer-encoding") == "chunked" or (length.isdigit() and int(length) > 0)


def attributes_of(item: Item) -> dict[str, Any]:
    """Convert a record from Python to DynamoDB's format.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has a type that a record cannot store.
    """
    return {name: value_of(value) for name, value in item.items()}


def item_of(stored: Mapping[str, Any]) -> Item:
    """Convert a record from DynamoDB's format to Python.

    Whole numbers become ``int``, other numbers ``float``, and sets become lists.
    """
    return {name: _plain(value) for name, value in stored.items()}


def expression_of(when: Condition | None, partition: str) -> dict[str, Any]:
    """Return the request arguments that express the condition of a write; empty for no condition.

    ``partition`` is the name of the partition key, which exists in every record.
    """
    if when is None:
        return {}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    terms: list[str] = []

    def named(name: str, alias: str) -> str:
        if len(name) == 1:  # never a reserved word
            return name
        names[alias] = name
        return alias

    for number, (name, value) in enumerate(when.equals.items()):
        values[f":e{number}"] = value_of(value)
        attribute = named(name, f"#e{number}")
        equals = f"{attribute} = :e{number}"
        terms.append(f"(attribute_not_exists({attribute}) OR {equals})" if value is None else equals)
    for number, (name, limit) in enumerate(when.below.items()):
        values[f":b{number}"] = value_of(limit)
        terms.append(f"{named(name, f'#b{number}')} < :b{number}")
    if not values:  # no existing record meets the condition
        terms.append("attribute_not_exists(#key)")
    if not when.below and all(value is None for value in when.equals.values()):  # otherwise a value implies existence
        terms.append("attribute_exists(#key)")
    text = " AND ".join(terms)
    if when.absent:
        text = f"attribute_not_exists(#key) OR ({text})" if values else "attribute_not_exists(#key)"
    if "#key" in text:
        names["#key"] = partition
    expression = {"ConditionExpression": text, "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
    return {part: value for part, value in expression.items() if value}


def value_of(value: Any) -> dict[str, Any]:
    """Convert a Python value to DynamoDB's format.

    Raises:
        ValueError: A number is not finite.
        TypeError: The value has a type that a record cannot store.
    """
    if value is None:
        return {"NULL": True}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"B": bytes(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a stored number must be finite, got {value!r:.80}")
        return {"N": str(Decimal(str(value)))}
    if isinstance(value, list | tuple):
        return {"L": [value_of(item) for item in value]}
    if isinstance(value, Mapping):
        return {"M": attributes_of(dict(value))}
    raise TypeError(f"a stored value must be str, int, float, bool, bytes, None, list or dict, got {type(value).__name__}")


def _plain(value: Mapping[str, Any]) -> Any:
    """Convert a value from DynamoDB's format to Python."""
    [(kind, content)] = value.items()
    if kind == "N":
        return _number(content)
    if kind == "L":
        return [_plain(item) for item in content]
    if kind == "M":
        return item_of(content)
    if kind == "NS":
        return [_number(text) for text in content]
    return None if kind == "NULL" else content


def _number(text: str) -> int | float:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)


def table_definition(schema: TableSchema, name: str) -> dict[str, Any]:
    """Return the arguments of the request that creates a table with the keys and indexes of a schema, billed on demand."""
    types = {schema.partition: "S", schema.sort: "S"}
    for index in schema.indexes:
        types |= {index.partition: "S", index.sort: "N" if index.sort_is_number else "S"}
    definition: dict[str, Any] = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key_schema(schema.partition, schema.sort),
        "AttributeDefinitions": [{"AttributeName": attribute, "AttributeType": kind} for attribute, kind in types.items()],
    }
    if schema.indexes:
        definition["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.partition, index.sort),
                "Projection": {"ProjectionType": "ALL"},
            }
            for index in schema.indexes
        ]
    return definition


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
