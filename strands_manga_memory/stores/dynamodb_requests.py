"""DynamoDB client, and conversion of errors, records and conditions for DynamoDB requests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import boto3
import orjson
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    ParamValidationError,
)

from strands_manga_memory.exceptions import (
    NO_TABLE,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from strands_manga_memory.stores.table import Condition, Item, TableSchema, normalize

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOT_MET = "ConditionalCheckFailedException"
MISSING = "ResourceNotFoundException"

_HAS_BODY = {"BatchGetItem", "BatchWriteItem", "GetItem", "Query"}
"""Operations whose response needs its body. A write has succeeded if its status says so."""

_PASSING = {  # error codes after which a retry may succeed
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeoutException",
    "Throttling",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}


_CREDENTIALS = (
    "authentication",
    "the credentials are missing, wrong or expired: renew them; those of a role are renewed"
    " automatically",
)
_PERMISSION = "permission", "grant its role the permissions of `strands-manga-memory permissions`"
_REFUSED = {
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "IncompleteSignatureException": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "OptInRequired": _CREDENTIALS,
    "RequestExpired": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "UnrecognizedClientException": _CREDENTIALS,
    "AccessDenied": _PERMISSION,
    "AccessDeniedException": _PERMISSION,
    "UnauthorizedOperation": _PERMISSION,
    MISSING: ("table", NO_TABLE),
    "TableNotFoundException": ("table", NO_TABLE),
    "ResourceInUseException": (
        "table",
        "the table is being created or deleted: wait until it is active",
    ),
}
"""Reason and remedy of refused requests, by error code."""

# error codes of invalid requests, which say nothing about the availability of the table
_OF_THE_REQUEST = {
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationError",
    "ValidationException",
}


def error_code(error: Exception) -> str:
    """Return the error code of a DynamoDB error, or an empty string for any other error.

    For a cancelled transaction, the result is the code of the reason for the cancellation.
    """
    if not isinstance(error, ClientError):
        return ""
    reasons = [reason.get("Code", "") for reason in error.response.get("CancellationReasons", ())]
    if "ConditionalCheckFailed" in reasons:
        return NOT_MET
    given = [reason for reason in reasons if reason not in ("", "None")]
    return given[0] if given else str(error.response.get("Error", {}).get("Code", ""))


def package_error(error: Exception, where: str) -> StoreError:
    """Convert an error of boto3 to the corresponding ``StoreError`` of this package.

    ``where`` is the beginning of the new error message, such as the table's name.
    """
    what = f"{where} | {error}"
    if isinstance(error, ClientError):
        code = error_code(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _PASSING or status >= 500:
            return StoreUnavailableError(what)
        if code in _OF_THE_REQUEST:
            return StoreError(what)
        unknown = code or "request", "see the AWS documentation of this error code"
        reason, remedy = _REFUSED.get(code, unknown)
    elif isinstance(error, ConnectionError | HTTPClientError | OSError):
        return StoreUnavailableError(what)
    elif isinstance(error, ParamValidationError):
        return StoreError(what)
    elif isinstance(error, BotoCoreError):
        reason, remedy = _CREDENTIALS
    else:
        reason, remedy = "client", "check the client and the source of its credentials"
    return StoreRefusedError(what, reason=reason, remedy=remedy)


def dynamodb_client(*, region: str | None = None, endpoint: str | None = None) -> DynamoDBClient:
    """Create a boto3 client with the settings that ``DynamoDBTable`` needs.

    The client does not retry, and opens up to 50 connections. The connect timeout is 2 s, and the
    read timeout is 1 s.

    Args:
        region: AWS region. Default: the region of the AWS configuration.
        endpoint: URL of the service, for example of a local server. Default: the URL of AWS.
    """
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=2,
        read_timeout=1,
        tcp_keepalive=True,
        # DynamoDB validates as well, and all requests are built by this package
        parameter_validation=False,
        max_pool_connections=50,
        user_agent_extra="strands-manga-memory",
    )
    client = boto3.session.Session().client(
        "dynamodb", region_name=region, endpoint_url=endpoint, config=config
    )
    client.meta.events.register("before-call.dynamodb", _write_as_utf8)
    return client


def _write_as_utf8(params: dict[str, Any], **_: Any) -> None:
    # UTF-8 is shorter than the ASCII escapes of botocore.
    with suppress(ValueError):  # a lone surrogate, which UTF-8 lacks: the escapes stay
        params["body"] = orjson.dumps(orjson.loads(params["body"]))


def check_answers(client: DynamoDBClient) -> None:
    """Let a client raise ``OSError`` if a connection ends before the end of a response.

    Otherwise, botocore returns the received part, which can look like a missing record. Clients of
    other libraries do not change.
    """
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is not None:
        name = "response-received.dynamodb"
        events.register(name, _check_length, unique_id="strands-manga-memory")


def _check_length(response_dict: Mapping[str, Any] | None, event_name: str, **_: Any) -> None:
    if response_dict is None:  # botocore raises an error
        return
    headers, received = response_dict["headers"], len(response_dict["body"])
    is_read = event_name.rpartition(".")[2] in _HAS_BODY
    is_write_stored = not is_read and response_dict["status_code"] < 300
    if is_write_stored or headers.get("transfer-encoding") == "chunked":
        return  # urllib3 checks the length of chunks
    length = headers.get("content-length", "")
    expected = int(length) if length.isdigit() else 0
    # Without a length, the connection has ended within the headers.
    if received < max(expected, int(is_read)):
        raise OSError("the connection ended before the answer")


def attributes_of(item: Item) -> dict[str, Any]:
    """Convert a record to DynamoDB's format, such as ``{"n": 2}`` to ``{"n": {"N": "2"}}``.

    Raises:
        ValueError: A number is not finite.
        TypeError: A value has a type that a record cannot store.
    """
    return {name: value_of(value) for name, value in item.items()}


def item_of(stored: Mapping[str, Any]) -> Item:
    """Convert a record from DynamoDB's format, such as ``{"n": {"N": "2"}}`` to ``{"n": 2}``.

    Whole numbers become ``int``, other numbers ``float``, and sets become lists.
    """
    return {name: _plain(value) for name, value in stored.items()}


def expression_of(when: Condition | None, partition: str) -> dict[str, Any]:
    """Return the boto3 arguments for the condition of a write; without a condition, an empty dict.

    ``partition`` is the name of the partition key, an attribute that is missing only if there is no
    record.
    """
    if when is None:
        return {}
    names, values, terms = {"#key": partition}, {}, ["attribute_exists(#key)"]
    for number, (name, value) in enumerate(when.equals.items()):
        names[f"#e{number}"], values[f":e{number}"] = name, value_of(value)
        equals = f"#e{number} = :e{number}"
        terms.append(f"(attribute_not_exists(#e{number}) OR {equals})" if value is None else equals)
    for number, (name, limit) in enumerate(when.below.items()):
        names[f"#b{number}"], values[f":b{number}"] = name, value_of(limit)
        terms.append(f"#b{number} < :b{number}")
    alternatives = ["attribute_not_exists(#key)"] if when.absent else []
    if values or not when.absent:  # without values, no existing record meets the condition
        terms += [] if values else ["attribute_not_exists(#key)"]
        alternatives.append(" AND ".join(terms))
    expression: dict[str, Any] = {
        "ConditionExpression": " OR ".join(alternatives),
        "ExpressionAttributeNames": names,
    }
    return {**expression, "ExpressionAttributeValues": values} if values else expression


def value_of(value: Any) -> dict[str, Any]:
    """Convert a Python value to DynamoDB's format, such as 2 to ``{"N": "2"}``.

    Raises:
        ValueError: A number is not finite.
        TypeError: The value has a type that a record cannot store.
    """
    return _typed(normalize(value))


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"M": {name: _typed(item) for name, item in value.items()}}
    if isinstance(value, list):
        return {"L": [_typed(item) for item in value]}
    if isinstance(value, bool | None):
        return {"NULL": True} if value is None else {"BOOL": value}
    if isinstance(value, int | float):
        return {"N": str(Decimal(str(value)))}
    return {"S": value} if isinstance(value, str) else {"B": value}


def _plain(value: Mapping[str, Any]) -> Any:
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
    """Return the arguments of ``create_table`` for the keys and indexes of a schema."""
    types = {schema.partition: "S", schema.sort: "S"}
    for index in schema.indexes:
        types |= {index.partition: "S", index.sort: "N" if index.sort_is_number else "S"}
    definition: dict[str, Any] = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key_schema(schema.partition, schema.sort),
        "AttributeDefinitions": [
            {"AttributeName": attribute, "AttributeType": kind} for attribute, kind in types.items()
        ],
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


def key_names(table: Mapping[str, Any], index: Mapping[str, Any] | None = None) -> list[str]:
    """Return the keys of a DynamoDB table or index as texts, such as ``sk (S, RANGE)``.

    ``table`` is a table as ``describe_table`` returns it, and ``index`` an index in it. Without
    ``index``, the keys of the table are returned.
    """
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    keys = ((one["AttributeName"], one["KeyType"]) for one in (index or table)["KeySchema"])
    return [f"{name} ({types.get(name)}, {role})" for name, role in keys]


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition, "KeyType": "HASH"},
        {"AttributeName": sort, "KeyType": "RANGE"},
    ]
