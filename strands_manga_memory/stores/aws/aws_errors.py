"""Conversion of boto3's errors to errors of this package, with cause and remedy."""

from __future__ import annotations

from typing import NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    ParamValidationError,
)

from strands_manga_memory.exceptions import NO_TABLE, StoreError, StoreRefusedError, StoreUnavailableError

NOT_MET = "ConditionalCheckFailedException"
MISSING = "ResourceNotFoundException"

_PASSING = {
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
_OF_THE_REQUEST = {
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationError",
    "ValidationException",
}


def code_of(error: Exception) -> str:
    """Return the error code; for a cancelled transaction, the reason of the cancellation."""
    if not isinstance(error, ClientError):
        return ""
    reasons = [reason.get("Code", "") for reason in error.response.get("CancellationReasons", ())]
    if "ConditionalCheckFailed" in reasons:
        return NOT_MET
    given = [reason for reason in reasons if reason not in ("", "None")]
    return given[0] if given else str(error.response.get("Error", {}).get("Code", ""))


def translated(error: Exception, where: str) -> StoreError:
    """Convert an error of the client, or of its credentials' source, to an error of this package.

    Args:
        error: The raised error.
        where: Description of the request, for the message.
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
    """Return whether a retry of a converted error may succeed within moments."""
    return isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError)


def _answered(error: ClientError, what: str) -> StoreError:
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _PASSING or status >= 500:
        return StoreUnavailableError(what)
    if code in _OF_THE_REQUEST:
        return StoreError(what)
    for refusal in _REFUSALS:
        if code in refusal.codes:
            return StoreRefusedError(what, reason=refusal.reason, remedy=refusal.remedy)
    return StoreRefusedError(what, reason=code or "request", remedy="see the AWS documentation of this error code")
