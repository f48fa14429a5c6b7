"""Parsed model request, for a model that answers by rules."""

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
        """Return the values of a field of the JSON result, in order. Values in truncated text are missing."""
        return [text or number for text, number in re.findall(rf'"{field}": (?:"([^"]*)"|(\d+))', self.text)]


@dataclass(frozen=True)
class Heard:
    """Parsed model request.

    Attributes:
        text: Text of the user.
        told: Texts in addition to the messages: state, recalled messages, memories, a handoff, and the system prompt.
        results: Results of tools in this turn so far.
        earlier: Earlier texts of the user in the window, latest first.
    """

    text: str
    told: str
    results: tuple[Result, ...]
    earlier: tuple[str, ...] = ()

    @classmethod
    def of(cls, messages: list[Any], system: list[Any] | None) -> Heard:
        """Parse a request."""
        asked = max(
            (at for at, message in enumerate(messages) if message["role"] == "user" and _own_texts(message)), default=None
        )
        if asked is None:
            raise ValueError("the request holds no message of the user")
        names: dict[str, str] = {}
        results: list[Result] = []
        told = [block["text"] for block in system or [] if "text" in block]
        for message in messages[asked:]:
            for block in message["content"]:
                if "toolUse" in block:
                    names[block["toolUse"]["toolUseId"]] = block["toolUse"]["name"]
                elif "toolResult" in block:
                    results.append(_result(block["toolResult"], names))
                elif _is_injected(block.get("text", "")):
                    told.append(block["text"])
        earlier = [_own_texts(message)[-1] for message in messages[:asked] if message["role"] == "user" and _own_texts(message)]
        return cls(_own_texts(messages[asked])[-1], "\n".join(told), tuple(results), tuple(reversed(earlier)))

    @property
    def japanese(self) -> bool:
        """Whether the user writes Japanese."""
        return _JAPANESE.search(self.text) is not None

    def says(self, words: str) -> bool:
        """Return whether the user's text matches a regular expression."""
        return re.search(words, self.text, re.IGNORECASE) is not None

    def is_told(self, words: str) -> str | None:
        """Return the first group of a regular expression in the additional texts, or None."""
        found = re.search(words, self.told)
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
