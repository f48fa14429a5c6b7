"""translated: what boto3 raises, as an error of this package that names the cause and what mends it."""

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


_CREDENTIALS = "its credentials are missing, wrong or expired: renew them; those of a role renew themselves"
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
        "grant its role what `strands-manga-memory permissions --print iam` lists",
    ),
    _Refusal("table", frozenset({MISSING, "TableNotFoundException"}), NO_TABLE),
    _Refusal("table", frozenset({"ResourceInUseException"}), "the table is being made or deleted: wait until it is active"),
)
_OF_THE_REQUEST = {
    "ItemCollectionSizeLimitExceededException",
    "SerializationException",
    "ValidationError",
    "ValidationException",
}


def code_of(error: Exception) -> str:
    """Return the error code; that of a cancelled transaction is the reason why it was cancelled."""
    if not isinstance(error, ClientError):
        return ""
    reasons = [reason.get("Code", "") for reason in error.response.get("CancellationReasons", ())]
    if "ConditionalCheckFailed" in reasons:
        return NOT_MET
    given = [reason for reason in reasons if reason not in ("", "None")]
    return given[0] if given else str(error.response.get("Error", {}).get("Code", ""))


def translated(error: Exception, where: str) -> StoreError:
    """Return the error of this package that stands for one of the client, or of what gives it its credentials.

    Args:
        error: What was raised.
        where: What was asked, for the message.
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
    return StoreRefusedError(what, reason="client", remedy="the client, or what gives it its credentials, fails")


def may_pass(error: StoreError) -> bool:
    """Tell whether what ``translated`` returned may be over within a moment."""
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
    return StoreRefusedError(what, reason=code or "request", remedy="its documentation says what this error code means")
