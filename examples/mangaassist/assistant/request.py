"""Content of a model request, for a model that answers by rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_INJECTED = ("<context>", "<conversation_state>", "<memory>", "<handoff ")
"""Beginnings of texts that were added to the user's own words."""

_JAPANESE = re.compile(r"[ぁ-んァ-ヶ一-龠]")


@dataclass(frozen=True)
class Result:
    """Result of a tool in this turn."""

    tool: str
    failed: bool
    text: str

    def values(self, field: str) -> list[str]:
        """Return a field's values in the JSON result, in order, without those in truncated text."""
        return [
            text or number
            for text, number in re.findall(rf'"{field}": (?:"([^"]*)"|(\d+))', self.text)
        ]


@dataclass(frozen=True)
class CustomerRequest:
    """Content of a model request: the user's text, added texts, and tool results.

    Attributes:
        text: Text of the user.
        added_text: Texts in addition to the messages: state, recalled messages, memories, a
            handoff, and the system prompt.
        results: Results of tools in this turn so far.
        earlier: Earlier texts of the user in the window, latest first.
    """

    text: str
    added_text: str
    results: tuple[Result, ...]
    earlier: tuple[str, ...] = ()

    @classmethod
    def parse(cls, messages: list[Any], system: list[Any] | None) -> CustomerRequest:
        """Parse a request."""
        question_at = max(
            (
                at
                for at, message in enumerate(messages)
                if message["role"] == "user" and _own_texts(message)
            ),
            default=None,
        )
        if question_at is None:
            raise ValueError("the request holds no message of the user")
        names: dict[str, str] = {}
        results: list[Result] = []
        added = [block["text"] for block in system or [] if "text" in block]
        for message in messages[question_at:]:
            for block in message["content"]:
                if "toolUse" in block:
                    names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
                elif "toolResult" in block:
                    results.append(_result(block["toolResult"], names))
                elif _is_injected(block.get("text", "")):
                    added.append(block["text"])
        earlier = [
            _own_texts(message)[-1]
            for message in messages[:question_at]
            if message["role"] == "user" and _own_texts(message)
        ]
        return cls(
            _own_texts(messages[question_at])[-1],
            "\n".join(added),
            tuple(results),
            tuple(reversed(earlier)),
        )

    @property
    def japanese(self) -> bool:
        """Whether the user writes Japanese."""
        return _JAPANESE.search(self.text) is not None

    def has_words(self, pattern: str) -> bool:
        """Return whether the user's text matches a regular expression."""
        return re.search(pattern, self.text, re.IGNORECASE) is not None

    def find_in_added_text(self, pattern: str) -> str | None:
        """Return the first group of a regular expression in the added text, or None."""
        found = re.search(pattern, self.added_text)
        return found[1] if found else None

    def result(self, tool: str) -> Result | None:
        """Return the last result of a tool in this turn, or None."""
        return next((result for result in reversed(self.results) if result.tool == tool), None)


def _own_texts(message: Any) -> list[str]:
    texts = [block["text"] for block in message["content"] if "text" in block]
    return [text for text in texts if not _is_injected(text)]


def _is_injected(text: str) -> bool:
    return text.lstrip().startswith(_INJECTED)


def _result(result: Any, names: dict[str, str]) -> Result:
    text = "\n".join(block["text"] for block in result["content"] if "text" in block)
    return Result(names.get(result["toolUseId"], ""), result["status"] == "error", text)
