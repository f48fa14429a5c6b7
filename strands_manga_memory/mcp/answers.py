"""Results of failed tool calls for the model: an error text with advice, or an earlier result.

Secrets are removed from error texts.
"""

from __future__ import annotations

import copy
import json
import math
import re
import reprlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from strands_manga_memory.arguments import Clock
from strands_manga_memory.mcp.classify import (
    BAD_ANSWER,
    BAD_ARGUMENTS,
    NO_SERVER,
    SERVER_BLOCKED,
    SERVER_ERROR,
    TIMEOUT,
    UNKNOWN_TOOL,
)
from strands_manga_memory.messages.message_parts import GUARD

PARTIAL_CHARACTERS = 500
MOST_RESULTS, MOST_BYTES = 1_024, 65_536
"""Maximum number of results in a ``ResultCache``, and maximum bytes of a result."""

Key = tuple[str, str, str, str, str]
"""Tenant, user, server, tool, and canonical JSON of the arguments."""


@dataclass(frozen=True)
class CachedResult:
    """Earlier successful result of a tool, with its age in seconds."""

    content: list[dict[str, Any]]
    age: float


class ResultCache:
    """Cache of successful tool results, which may replace the results of failed calls.

    The cache has the 1,024 latest results of at most 65,536 bytes each.

    Args:
        ttl: Seconds after which a result is no longer used.
        clock: Function that returns monotonic seconds.
    """

    def __init__(self, ttl: float, *, clock: Clock = time.monotonic) -> None:
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[float, list[dict[str, Any]]]] = OrderedDict()

    def keep(self, key: Key, result: Mapping[str, Any]) -> None:
        """Store the result of a successful tool call, in place of the result of an equal call.

        Equal calls have the same ``key``: tenant, user, server, tool and arguments. A result that
        is too large, or has other blocks than text and JSON, is not stored, but the earlier result
        is deleted.
        """
        try:
            content = list(result.get("content") or ())
            # images are not serialized to measure their size
            fits = all(set(one) <= {"text", "json"} for one in content)
            fits = (
                fits
                and sum(len(str(one).encode(errors="replace")) for one in content) <= MOST_BYTES
            )
            content = copy.deepcopy(content) if fits else []
        except Exception:  # noqa: BLE001 - a tool may return anything
            fits = False
        with self._lock:
            self._kept.pop(key, None)
            if fits:
                self._kept[key] = (self._clock(), content)
                if len(self._kept) > MOST_RESULTS:
                    self._kept.popitem(last=False)

    def find(self, key: Key) -> CachedResult | None:
        """Return the cached result of an equal call; None if there is no such result.

        A result that is older than ``ttl`` seconds is not returned.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            age = max(0.0, self._clock() - found[0])
            if age > self._ttl:
                del self._kept[key]
                return None
            return CachedResult(copy.deepcopy(found[1]), age)


REASONS = {
    TIMEOUT.code: "{tool} did not answer within {timeout:g} s.",
    NO_SERVER.code: "The connection to the server {server} of {tool} was lost.",
    BAD_ARGUMENTS.code: "{tool} did not accept the arguments.",
    UNKNOWN_TOOL.code: "The server {server} does not know {tool}.",
    SERVER_ERROR.code: "The server {server} answered the call of {tool} with an error of its own.",
    BAD_ANSWER.code: (
        "The server {server} gave no answer to the call of {tool} that can be understood."
    ),
    SERVER_BLOCKED.code: (
        "{tool} did not answer within {timeout:g} s: another tool keeps the server {server} busy."
    ),
}
"""Descriptions of failures by code, as format strings."""


@dataclass(frozen=True, kw_only=True)
class ToolFailure:
    """Failure of a tool call, with its description for the model and for hooks.

    Args:
        code: ``circuit_open``, ``server_unavailable``, ``server_blocked``, ``timeout``,
            ``tool_error``, ``agent_error``, ``invalid_arguments``, ``unknown_tool``,
            ``elicitation_required``, ``server_error``, ``protocol_error``, or the code of a custom
            classifier.
        reason: Description in one sentence.
        request_id: The ``toolUseId`` of the call.
        duration: Duration of the call in seconds; 0 if it was rejected.
        tool: Name of the tool, as the model knows it.
        server: Name of the MCP server, or None.
        state: State of the tool's circuit breaker: ``closed``, ``open`` or ``half_open``.
        health: Health of the tool: ``healthy``, ``degraded`` or ``unavailable``.
        failures: Number of failures of the tool in a row.
        retry_after: Seconds until a retry may succeed; infinite if an operator must act first.
        retryable: Whether the same call may succeed later.
        side_effects_unknown: Whether the call may have had side effects, although it failed.
        partial: Progress that the tool reported before the failure.
        alternatives: Names of other tools that may help.
    """

    code: str
    reason: str
    request_id: str
    duration: float = 0.0
    tool: str
    server: str | None = None
    state: str
    health: str
    failures: int
    retry_after: float = 0.0
    retryable: bool = True
    side_effects_unknown: bool = False
    partial: Sequence[Any] = ()
    alternatives: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the failure as data for the model.

        The data have the error code and the seconds until a retry (None if an operator must act
        first). ``side_effects_unknown`` is included only if True, and ``alternatives``, the names
        of other tools, only if there are any.
        """
        return {
            "code": self.code,
            "retry_after_s": (
                round(self.retry_after, 3) if math.isfinite(self.retry_after) else None
            ),
            **({"side_effects_unknown": True} if self.side_effects_unknown else {}),
            **({"alternatives": list(self.alternatives)} if self.alternatives else {}),
        }

    def details(self) -> dict[str, Any]:
        """Return all fields of this failure as JSON values, for the metadata of the tool result."""
        return {
            **asdict(self),
            "duration": round(self.duration, 3),
            "retry_after": self.as_json()["retry_after_s"],
            "partial": list(self.partial),
            "alternatives": list(self.alternatives),
        }

    def as_text(self) -> str:
        """Return a text on the failed tool call for the model: cause, consequences and advice."""
        parts = [self.reason]
        if self.side_effects_unknown:
            parts.append("It may have taken effect all the same: check before you repeat it.")
        if self.partial:
            parts.append(
                "It had reported so far:"
                f" {json.dumps(list(self.partial), ensure_ascii=False, default=str)}"
            )
        parts.append(self._advice())
        return " ".join(parts)

    def _advice(self) -> str:
        others = f" Or use {' or '.join(self.alternatives)}." if self.alternatives else ""
        if self.code == "invalid_arguments":
            return f"Correct the arguments and call it again.{others}"
        if self.code == "tool_error" and self.retry_after <= 0:
            return (
                "If the error names a mistake in the call, correct it. Otherwise, continue without"
                f" this tool.{others}"
            )
        if not self.retryable:
            return f"Do not repeat this call.{others}"
        if self.retry_after <= 0:
            return f"You may try it again.{others}"
        if not math.isfinite(self.retry_after):
            return f"Do not call it again for now; go on without it and say so.{others}"
        seconds = math.ceil(self.retry_after)
        return (
            f"Do not call it again within {seconds} s; go on without it, or tell the user to ask"
            f" later.{others}"
        )


def error_result(
    failure: ToolFailure, *, original: Mapping[str, Any] | None = None, text: str = ""
) -> dict[str, Any]:
    """Return a tool result with the status ``error``, which describes a failed tool call.

    ``original`` is the tool's own error result, whose fields ``isError`` and ``metadata`` are
    copied. ``text`` is the tool's error text, without secrets.
    """
    rest = {
        name: original[name]
        for name in ("isError", "metadata")
        if original is not None and name in original
    }
    words = f"{text}\n{failure.as_text()}" if text else failure.as_text()
    result = {**rest, "toolUseId": failure.request_id, "status": "error"}
    return _with_details(result, failure, [{"text": words}])


def stale_result(failure: ToolFailure, good: CachedResult) -> dict[str, Any]:
    """Return the cached result ``good`` for a failed call, with a note that it may be outdated."""
    note = (
        f"Note: {failure.reason} This is its last good answer to the same call, {_ago(good.age)}"
        " old; it may be out of date. Say so if it matters."
    )
    result = {"toolUseId": failure.request_id, "status": "success"}
    return _with_details(
        result, failure, [{"text": note}, *good.content], stale=True, age_s=round(good.age, 3)
    )


def fallback_result(
    result: Mapping[str, Any], failure: ToolFailure, *, tool_name: str
) -> dict[str, Any]:
    """Return the result of the fallback tool ``tool_name``, with a note on the failed call."""
    note = f"Note: {failure.reason} {tool_name} answered instead."
    return _with_details(
        result, failure, [{"text": note}, *content_list(result)], fallback=tool_name
    )


def _with_details(
    result: Mapping[str, Any], failure: ToolFailure, content: list[Any], **extra: Any
) -> dict[str, Any]:
    given = result.get("metadata")
    metadata = {
        **(given if isinstance(given, Mapping) else {}),
        GUARD: {**failure.details(), **extra},
    }
    return {
        **result,
        "content": [*content, {"json": {**failure.as_json(), **extra}}],
        "metadata": metadata,
    }


def cancelled_result(request_id: str) -> dict[str, Any]:
    """Return the tool result of a call that was cancelled."""
    text = "Tool execution cancelled; parts of it may have taken effect"
    return {
        "toolUseId": request_id,
        "status": "error",
        "content": [{"text": text}],
        "cancelled": True,
    }


def content_list(result: Mapping[str, Any]) -> list[Any]:
    """Return the content blocks of a tool result; an empty list if it has no list of blocks."""
    content = result.get("content")
    return content if isinstance(content, list) else []


def progress_text(event: Any) -> str:
    """Return the text of a running tool's progress event, up to 500 characters, without secrets."""
    try:
        value = event.get("tool_stream_event", event) if isinstance(event, Mapping) else event
        value = value.get("data", value) if isinstance(value, Mapping) else value
        text = value if isinstance(value, str) else _json_head(value)
        return redact_secrets(text)[:PARTIAL_CHARACTERS]  # first, as the limit may cut a secret
    except Exception:  # noqa: BLE001 - a tool may stream anything
        return type(event).__name__


def _json_head(value: Any) -> str:
    parts = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
    try:
        # the rest of a large value is not encoded
        return "".join(islice(parts, PARTIAL_CHARACTERS))
    except (TypeError, ValueError, RecursionError):  # a cycle, or keys that are not strings
        return reprlib.repr(value)


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


MAX_TEXT = 1000
"""Maximum number of characters of an error text for the model."""

CUT = "[cut]"

# Up to the line of the error. A traceback without indented lines is removed to the end of the text.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):(?:(?:\n[ \t][^\n]*)+|.*)", re.DOTALL)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# Repetitions are bounded or possessive, so that matching takes linear time: "[\w-]*secret" would
# scan a long run once per letter.
_RULES = (
    # user:password@ of a URL
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s]*@"), f"{CUT}@"),
    (
        re.compile(r"\b(bearer|basic|token)\s{1,20}[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
        rf"\1 {CUT}",
    ),
    (
        re.compile(
            r"\b(pass(?:word|wd|phrase)\b[^\n.;]{1,40}?\b(?:it|which)\s(?:is|was)\s)(?=[^\s,;]{0,64}\d)"
            r"[^\s,;]+",
            re.IGNORECASE,
        ),
        rf"\1{CUT}",
    ),
    (
        re.compile(r"\b(pass(?:word|wd|phrase))(\s{1,20}(?:is\s{1,20})?)[^\s,;]+", re.IGNORECASE),
        rf"\1\2{CUT}",
    ),
    # name = value, name: value, "name": "value"
    (
        re.compile(
            r"""((?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|cookie|"""
            r"""authorization|session[_-]?id|signature)[\w-]{0,64}["']?)(\s{0,20}[=:]\s{0,20})("[^"]*"|'[^']*'|(?:bearer\s{1,20}|basic\s{1,20})?[^\s,;&"'}]+)""",
            re.IGNORECASE,
        ),
        rf"\1\2{CUT}",
    ),
    # keys of known forms: AWS, GitHub, Slack, OpenAI and Stripe, Google, JSON web tokens
    (
        re.compile(
            r"\b((AKIA|ASIA)[A-Z0-9]{12,}|gh[opsur]_\w{20,}|github_pat_\w{20,}|xox[a-z]-[\w-]{10,}|[sr]k[-_][\w-]{16,}"
            r"|AIza[\w-]{30,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*)"
        ),
        CUT,
    ),
    # hexadecimal or base64 of 32 characters or more
    (re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z+/_=-]*+\d)[A-Za-z0-9+/_=-]{32,}+"), CUT),
)


def redact_secrets(text: str) -> str:
    """Remove secrets and frames of tracebacks from an error text; truncate it to 1,000 characters.

    These secrets are recognized: values after names such as ``password=``, credentials in URLs,
    known formats of keys, and long runs of hexadecimal or base64 characters. A secret that looks
    like a word is not recognized.
    """
    text = _PRIVATE_KEY.sub(CUT, _TRACEBACK.sub(CUT, text[: 10 * MAX_TEXT]))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} {CUT}"
