"""Short ways to write messages."""

import itertools
from typing import Any

_ids = itertools.count()


class Silent:
    """Has no text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def user(text: str = "question", **more: Any) -> Any:
    return {"role": "user", "content": [{"text": text}], "tracking_id": f"id{next(_ids)}", **more}


def assistant(text: str = "answer", **more: Any) -> Any:
    return {
        "role": "assistant",
        "content": [{"text": text}],
        "tracking_id": f"id{next(_ids)}",
        **more,
    }


def calls(*ids: str, text: str = "", tool_input: Any = None) -> Any:
    content: list[Any] = [{"text": text}] if text else []
    content += [
        {"toolUse": {"toolUseId": id_, "name": "lookup", "input": tool_input or {"q": id_}}}
        for id_ in ids
    ]
    return {"role": "assistant", "content": content, "tracking_id": f"id{next(_ids)}"}


def results(*ids: str, content: list[Any] | None = None, status: str = "success") -> Any:
    blocks = [
        {
            "toolResult": {
                "toolUseId": id_,
                "status": status,
                "content": content or [{"text": f"result of {id_}"}],
            }
        }
        for id_ in ids
    ]
    return {"role": "user", "content": blocks, "tracking_id": f"id{next(_ids)}"}


def pinned(message: Any) -> Any:
    return {**message, "metadata": {"custom": {"pinned": True}}}
