"""Random histories of all content blocks, with interrupted turns and damaged logs."""

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from strands.types.content import Message

from strands_manga_memory.messages import is_turn_start, tool_result_ids, tool_use_ids

IDS = ("call_0", "call_1", "functions.find:0")

_texts = st.sampled_from(
    [
        "hello there, how are you?",
        "ok",
        "",
        " \n",
        "[…]",
        "a longer text about volume 3 of Berserk. " * 8,
    ]
)
_bytes = st.sampled_from([b"x", b"y" * 400, bytes(4_000_000)])
_names = st.sampled_from(["terms", "terms", "my  report.pdf", "注文書", "a (1)", ""])

_text = _texts.map(lambda text: {"text": text})
_image = _bytes.map(lambda data: {"image": {"format": "png", "source": {"bytes": data}}})
_document = st.builds(
    lambda name, data: {"document": {"format": "txt", "name": name, "source": {"bytes": data}}},
    _names,
    _bytes,
)
_video = _bytes.map(lambda data: {"video": {"format": "mp4", "source": {"bytes": data}}})
_json = st.sampled_from([{"n": 1}, [1, 2], "text", 3, None]).map(lambda value: {"json": value})
_reasoning = st.sampled_from(
    [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"reasoningText": {"text": "hm"}}},
        {"reasoningContent": {"redactedContent": b"secret"}},
    ]
)
_guard = _texts.map(lambda t: {"guardContent": {"text": {"text": t, "qualifiers": ["query"]}}})
_cited = _texts.map(lambda t: {"citationsContent": {"content": [{"text": t}], "citations": []}})
_cache_point = st.just({"cachePoint": {"type": "default"}})
_call = st.sampled_from(IDS).map(
    lambda id_: {"toolUse": {"toolUseId": id_, "name": "find", "input": {"q": "x"}}}
)
_result = st.builds(
    lambda id_, status, content: {
        "toolResult": {"toolUseId": id_, "status": status, "content": content}
    },
    st.sampled_from(IDS),
    st.sampled_from(["success", "error"]),
    st.lists(st.one_of(_text, _json, _image, _document), max_size=3),
)

_of_user = st.one_of(_text, _text, _image, _document, _video, _result, _guard, _cache_point)
_of_assistant = st.one_of(_text, _text, _call, _reasoning, _cited, _cache_point)
_any = st.one_of(_of_user, _of_assistant)


def _message(role: str, blocks: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(blocks, max_size=4).map(lambda content: {"role": role, "content": content})


def _tool_cycle(results: int) -> st.SearchStrategy[list[Any]]:
    """Return calls with ids that may be the same, and a message of so many of their results."""

    def cycle(ids: list[str], texts: list[str], *, thinks: bool) -> list[Any]:
        calls: list[Any] = [
            {"toolUse": {"toolUseId": id_, "name": "find", "input": {"q": id_}}} for id_ in ids
        ]
        thought = (
            [{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}]
            if thinks
            else []
        )
        answers = [
            {"toolResult": {"toolUseId": id_, "status": "success", "content": [{"text": text}]}}
            for id_, text in zip(ids, texts, strict=False)
        ]
        messages: list[Any] = [{"role": "assistant", "content": [*thought, *calls]}]
        return messages + (
            [{"role": "user", "content": answers[:results]}] if results and answers else []
        )

    ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3)
    return st.builds(cycle, ids, st.lists(_texts, min_size=3, max_size=3), thinks=st.booleans())


_said = st.sampled_from(["user", "assistant"]).map(
    lambda role: {"role": role, "content": [{"text": f"a {role} says this"}]}
)
_part = st.one_of(
    _said.map(lambda message: [message]),
    _message("user", _of_user).map(lambda message: [message]),
    _message("assistant", _of_assistant).map(lambda message: [message]),
    _tool_cycle(3),
    _tool_cycle(1),
    _tool_cycle(0),
)

histories = st.lists(_part, max_size=8).map(lambda parts: [m for part in parts for m in part])
"""Histories whose blocks stand in messages of the right role."""

damaged_histories = st.lists(
    st.one_of(_message("user", _any), _message("assistant", _any)), max_size=8
)
"""Histories whose blocks stand anywhere."""


def problems(messages: Sequence[Message]) -> list[str]:
    """Return the reasons why Bedrock, Anthropic or OpenAI would reject a history.

    The first message must be a user message without tool results, and roles must alternate. Only
    the assistant may call tools, and the next message must contain exactly the results of these
    calls. Only the last message may have calls without results.
    """
    found = []
    if messages and not is_turn_start(messages[0]):
        found.append(f"message 0 is not a plain user message but {_described(messages[0])}")
    role, open_calls = "", list[str]()
    for at, message in enumerate(messages):
        if message["role"] == role:
            found.append(f"messages {at - 1} and {at} are both of role {role}")
        role = message["role"]
        if not open_calls and len(content := message["content"]) == 1 and "text" in content[0]:
            continue  # a plain text message, the usual case, needs no further checks
        uses, results = tool_use_ids(message), tool_result_ids(message)
        if uses and role != "assistant":
            found.append(f"message {at} calls tools but is of role {role}")
        if results and role != "user":
            found.append(f"message {at} holds tool results but is of role {role}")
        if len(set(uses)) < len(uses) or len(set(results)) < len(results):
            found.append(f"message {at} holds a toolUseId twice")
        if open_calls and sorted(open_calls) != sorted(results):
            found.append(
                f"message {at - 1} calls tools that message {at} does not answer one for one"
            )
        if results and not open_calls:
            found.append(f"message {at} holds results of tools that message {at - 1} did not call")
        open_calls = uses
    return found


def _described(message: Message) -> str:
    return f"of role {message['role']}" + (" with tool results" if tool_result_ids(message) else "")


def play_session(machine: type[RuleBasedStateMachine], session: str, *, steps: int) -> None:
    """Play the same few random conversations, each of at most ``steps`` steps.

    ``session`` is a value that the machine reads, the kind of its session manager.
    """
    run_state_machine_as_test(
        type(machine.__name__, (machine,), {"session": session}),
        settings=settings(
            max_examples=8,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
