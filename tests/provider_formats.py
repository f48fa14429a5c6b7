"""Strict validators of requests to model providers, independent of the package.

Each stands behind Strands' own formatter of that provider, and checks what the provider is
documented, or known from error messages, to refuse. ``problems`` returns one line a problem: a
rule, a colon, and where it is broken.

Sources: the API references of Converse, Messages, Chat Completions and generateContent; botocore's
service model; issues of Strands about refused requests.
"""

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import boto3
from botocore.validate import ParamValidator
from strands.models.anthropic import AnthropicModel
from strands.models.bedrock import BedrockModel
from strands.models.gemini import GeminiModel
from strands.models.openai import OpenAIModel

_BEDROCK = {
    "bedrock-claude": "anthropic.claude-sonnet-4-20250514-v1:0",
    "bedrock-llama": "meta.llama3-3-70b-instruct-v1:0",
    "bedrock-mistral": "mistral.mistral-large-2407-v1:0",
}

PROVIDERS = (*_BEDROCK, "anthropic", "openai", "gemini")
"""Names of the providers that :func:`problems` knows."""

_NAME = re.compile(r"(?:[A-Za-z0-9()\[\]-]|(?<!\s)\s)+")


def problems(request_messages: Sequence[Any], provider: str) -> list[str]:
    """Return the reasons for which a provider refuses a request; empty if it takes the request.

    Args:
        request_messages: Messages in the form of Strands, as a model's ``stream`` gets them.
        provider: One of ``PROVIDERS``.
    """
    plain: list[Any] = [{"role": m["role"], "content": m["content"]} for m in request_messages]
    check, formatted = _formatter(provider)
    try:
        request = formatted(plain)
    except (KeyError, TypeError, ValueError) as error:
        return [f"formatter raises: {type(error).__name__} {error}"]
    return list(check(request))


def request_text(request_messages: Sequence[Any], provider: str) -> str:
    """Return the JSON text of a request, as the formatter of a provider in Strands makes it."""
    plain = [{"role": m["role"], "content": m["content"]} for m in request_messages]
    return json.dumps(_formatter(provider)[1](plain), default=lambda v: v.model_dump(mode="json"))


def rules(found: Iterable[str]) -> set[str]:
    """Return the rules that problems break."""
    return {problem.partition(":")[0] for problem in found}


def _formatter(provider: str) -> tuple[Callable[[Any], Iterator[str]], Callable[[Any], Any]]:
    if provider in _BEDROCK:
        check = functools.partial(_converse, takes_text_beside_results=provider == "bedrock-claude")
        return check, _bedrock(_BEDROCK[provider]).format_request
    if provider == "anthropic":
        return _anthropic, _anthropic_model().format_request
    if provider == "openai":
        return _openai, OpenAIModel.format_request_messages
    if provider == "gemini":
        return _gemini, _gemini_model()._format_request_content
    raise ValueError(f"provider must be one of {', '.join(PROVIDERS)}, got {provider!r}")


@functools.cache
def _bedrock(model_id: str) -> BedrockModel:
    session = boto3.Session(
        aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1"
    )
    return BedrockModel(boto_session=session, model_id=model_id)


@functools.cache
def _anthropic_model() -> AnthropicModel:
    return AnthropicModel(
        client_args={"api_key": "x"}, model_id="claude-sonnet-4-20250514", max_tokens=1_024
    )


@functools.cache
def _gemini_model() -> GeminiModel:
    return GeminiModel(client=object(), model_id="gemini-2.5-flash")


@functools.cache
def _converse_shape() -> Any:
    return (
        boto3.client("bedrock-runtime", region_name="us-east-1")
        .meta.service_model.operation_model("Converse")
        .input_shape
    )


# --- Rules that several providers share -----------------------------------------------------------


def _order(roles: Sequence[str]) -> Iterator[str]:
    if not roles:
        yield "no message: the request is empty"
    elif roles[0] != "user":
        yield f"first message: it is of role {roles[0]}"
    for at, (one, other) in enumerate(itertools.pairwise(roles)):
        if one == other:
            yield f"roles do not alternate: messages {at} and {at + 1}"


def _calls(called: Sequence[Sequence[str]], answered: Sequence[Sequence[str]]) -> Iterator[str]:
    """Check that each call is answered once in the next message, without repeated ids."""
    for at, results in enumerate(answered):
        if sorted(results) != sorted(called[at - 1] if at else []):
            yield f"results do not answer the calls before: message {at}"
    if called and called[-1]:
        yield f"call without a result: message {len(called) - 1}"
    ids = [id_ for each in called for id_ in each]
    if len(set(ids)) < len(ids):
        yield "repeated tool-call id: " + ", ".join(
            sorted({id_ for id_ in ids if ids.count(id_) > 1})
        )


def _ids(called: Sequence[Sequence[str]], pattern: str) -> Iterator[str]:
    for id_ in (id_ for each in called for id_ in each):
        if not isinstance(id_, str) or re.fullmatch(pattern, id_) is None:
            yield f"tool-call id: {id_!r}"


def _is_blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


# --- Bedrock Converse -----------------------------------------------------------------------------


def _converse(request: dict[str, Any], *, takes_text_beside_results: bool) -> Iterator[str]:
    report = ParamValidator().validate(request, _converse_shape())
    if report.has_errors():
        yield f"shape: {report.generate_report()[:300]}"
        return
    messages = request["messages"]
    contents = [message["content"] for message in messages]
    yield from _order([message["role"] for message in messages])
    called = [[b["toolUse"]["toolUseId"] for b in c if "toolUse" in b] for c in contents]
    answered = [
        [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
        for content in contents
    ]
    yield from _calls(called, answered)
    yield from _ids(called, r"[a-zA-Z0-9_.:-]{1,64}")
    for at, message in enumerate(messages):
        yield from _converse_message(
            message, at, takes_text_beside_results=takes_text_beside_results
        )
    yield from _converse_media(contents)
    if sum("cachePoint" in block for content in contents for block in content) > 4:
        yield "cache points: more than 4"


def _converse_message(
    message: dict[str, Any], at: int, *, takes_text_beside_results: bool
) -> Iterator[str]:
    content = message["content"]
    kinds = [next(iter(block)) for block in content]
    if not content:
        yield f"empty content: message {at}"
    elif kinds[0] == "cachePoint":
        yield f"cache point first: message {at}"
    for kind, role in _ROLES.items():
        if kind in kinds and message["role"] != role:
            yield f"block in a message of the wrong role: {kind} in message {at}"
    if (
        "toolResult" in kinds
        and not takes_text_beside_results
        and set(kinds) - {"toolResult", "cachePoint"}
    ):
        yield f"text beside tool results: message {at}"
    if "document" in kinds and "text" not in kinds:
        yield f"document without text: message {at}"
    for block in content:
        yield from _converse_block(block, at)


_ROLES = {
    "toolUse": "assistant",
    "reasoningContent": "assistant",
    "toolResult": "user",
    "image": "user",
    "document": "user",
}


def _converse_block(block: dict[str, Any], at: int) -> Iterator[str]:
    if "text" in block and _is_blank(block["text"]):
        yield f"blank text: message {at}"
    if "text" in block.get("guardContent", {}) and _is_blank(block["guardContent"]["text"]["text"]):
        yield f"blank text: guarded, message {at}"
    if "toolUse" in block and not isinstance(block["toolUse"]["input"], dict):
        yield f"tool input: message {at}"
    if "toolResult" in block:
        if not block["toolResult"]["content"]:
            yield f"empty tool result: message {at}"
        for item in block["toolResult"]["content"]:
            if "text" in item and _is_blank(item["text"]):
                yield f"blank text: tool result, message {at}"
            if "json" in item and not isinstance(item["json"], dict):
                yield f"json of a tool result: message {at}"


def _converse_media(contents: Sequence[Sequence[dict[str, Any]]]) -> Iterator[str]:
    media = []
    for block in (block for content in contents for block in content):
        inner = (
            block["toolResult"]["content"]
            if "toolResult" in block
            else [block.get("guardContent", block)]
        )
        media += [
            (kind, item[kind])
            for item in inner
            for kind in ("image", "document", "video")
            if kind in item
        ]
    if sum(kind == "image" for kind, _ in media) > 20:
        yield "images: more than 20"
    names = [medium["name"] for kind, medium in media if kind == "document"]
    if len(names) > 5:
        yield "documents: more than 5"
    if len(set(names)) < len(names):
        yield "document names: repeated"
    yield from (
        f"document names: {name!r}"
        for name in names
        if len(name) > 200 or _NAME.fullmatch(name) is None
    )
    if (
        len(media) > 1
        and sum(len(medium["source"].get("bytes", b"")) for _, medium in media) * 4 / 3 > 25_000_000
    ):
        yield "bytes: more than 25 MB"


# --- Anthropic ------------------------------------------------------------------------------------


def _anthropic(request: dict[str, Any]) -> Iterator[str]:
    messages = request["messages"]
    contents = [message["content"] for message in messages]
    yield from _order([message["role"] for message in messages])
    called = [[block["id"] for block in c if block["type"] == "tool_use"] for c in contents]
    answered = [
        [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        for content in contents
    ]
    yield from _calls(called, answered)
    yield from _ids(called, r"[a-zA-Z0-9_-]+")
    for at, message in enumerate(messages):
        yield from _anthropic_message(message, at)
    if sum(block["type"] == "image" for content in contents for block in content) > 100:
        yield "images: more than 100"
    encoded = [
        len(block["source"]["data"])
        for content in contents
        for block in content
        if "source" in block
    ]
    if len(encoded) > 1 and sum(encoded) > 32_000_000:
        yield "bytes: more than 32 MB"
    if sum("cache_control" in block for content in contents for block in content) > 4:
        yield "cache points: more than 4"


def _anthropic_message(message: dict[str, Any], at: int) -> Iterator[str]:
    kinds = [block["type"] for block in message["content"]]
    if not kinds:
        yield f"empty content: message {at}"
        return
    if message["role"] == "assistant" and kinds[-1] in ("thinking", "redacted_thinking"):
        yield f"reasoning last: message {at}"
    if "tool_result" in kinds and "tool_result" in kinds[kinds.count("tool_result") :]:
        yield f"results behind other blocks: message {at}"
    for kind, role in {
        "tool_use": "assistant",
        "thinking": "assistant",
        "tool_result": "user",
        "image": "user",
    }.items():
        if kind in kinds and message["role"] != role:
            yield f"block in a message of the wrong role: {kind} in message {at}"
    for block in message["content"]:
        if block["type"] == "text" and _is_blank(block["text"]):
            yield f"blank text: message {at}"
        if block["type"] == "tool_use" and not isinstance(block["input"], dict):
            yield f"tool input: message {at}"
        if block["type"] == "tool_result" and any(
            item["type"] == "text" and _is_blank(item["text"]) for item in block["content"]
        ):
            yield f"blank text: tool result, message {at}"


# --- OpenAI ---------------------------------------------------------------------------------------


def _openai(messages: list[dict[str, Any]]) -> Iterator[str]:
    waiting: list[str] = []
    seen: list[str] = []
    if not messages:
        yield "no message: the request is empty"
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            id_ = message["tool_call_id"]
            if id_ in waiting:
                waiting.remove(id_)
            else:
                yield f"results do not answer the calls before: message {at}"
        elif waiting:
            yield f"call without a result: before message {at}"
            waiting = []
        waiting += [call["id"] for call in message.get("tool_calls", ())]
        seen += [call["id"] for call in message.get("tool_calls", ())]
        yield from _openai_message(message, at)
    if waiting:
        yield "call without a result: at the end"
    if len(set(seen)) < len(seen):
        yield "repeated tool-call id: of two calls"
    yield from _ids([seen], r".{1,40}")


def _openai_message(message: dict[str, Any], at: int) -> Iterator[str]:
    content = message.get("content")
    if not content and not message.get("tool_calls"):
        yield f"empty content: message {at}"
    if message.get("tool_calls") and message["role"] != "assistant":
        yield f"block in a message of the wrong role: call in message {at}"
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for part in parts:
        if part["type"] == "text" and _is_blank(part["text"]):
            yield f"blank text: message {at}"
        if part["type"] != "text" and message["role"] != "user":
            yield f"block in a message of the wrong role: {part['type']} in message {at}"
    for call in message.get("tool_calls", ()):
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield f"tool input: message {at}"


# --- Gemini ---------------------------------------------------------------------------------------


def _gemini(contents: list[Any]) -> Iterator[str]:
    yield from _order(["assistant" if c.role == "model" else c.role for c in contents])
    called = [[part.function_call.id for part in c.parts if part.function_call] for c in contents]
    answered = [
        [part.function_response.id for part in content.parts if part.function_response]
        for content in contents
    ]
    yield from _calls(called, answered)
    for at, content in enumerate(contents):
        if not content.parts:
            yield f"empty content: message {at}"
        for part in content.parts:
            if part.text is not None and _is_blank(part.text):
                yield f"blank text: message {at}"
            if part.function_call and content.role != "model":
                yield f"block in a message of the wrong role: call in message {at}"
            if part.function_response and content.role != "user":
                yield f"block in a message of the wrong role: result in message {at}"
    blobs = [part.inline_data.data for c in contents for part in c.parts if part.inline_data]
    if len(blobs) > 1 and sum(map(len, blobs)) * 4 / 3 > 20_100_000:
        yield "bytes: more than 20 MB"
