"""Full texts of tool results that were cut in the history, and the tool that reads them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from strands import tool
from strands.types.content import Message

from strands_manga_memory.conversation.tokens import as_json

TOOL_NAME = "read_tool_result"

PAGE = 4_000
"""Characters the tool returns at a time."""

MOST_CHARACTERS = 20_000_000
"""Kept in memory; of more, what was not used for longest goes (and is then read from the log)."""


class ResultArchive:
    """Keeps full texts by the id of their tool call, for one agent.

    Args:
        log: The raw messages of the conversation, if a session keeps them: what is not in memory is looked for there.
    """

    def __init__(self, log: Callable[[], Iterable[Message]] | None = None) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._characters = 0

    def keep(self, id_: str, text: str) -> None:
        """Keep a text; the first one kept under an id stays, later ones were cut already."""
        with self._lock:
            if id_ in self._texts:
                return
            self._texts[id_] = text
            self._characters += len(text)
            while self._characters > MOST_CHARACTERS and len(self._texts) > 1:
                self._characters -= len(self._texts.popitem(last=False)[1])

    def read(self, id_: str) -> str | None:
        """Return the full text of a tool result; None if nothing is known of it."""
        with self._lock:
            if id_ in self._texts:
                self._texts.move_to_end(id_)
                return self._texts[id_]
        for message in self._log() if self._log is not None else ():
            for block in message["content"]:
                if "toolResult" in block and block["toolResult"]["toolUseId"] == id_:
                    return result_text(block["toolResult"])
        return None

    def tool(self) -> Any:
        """Return the tool that lets the model read what was cut."""

        @tool(name=TOOL_NAME)
        def read_tool_result(tool_use_id: str, offset: int = 0) -> str:
            """Read the full text of an earlier tool result that was shortened in the conversation.

            Args:
                tool_use_id: The id given where the result was shortened.
                offset: Character to begin with; each call returns up to 4,000 characters.
            """
            text = self.read(tool_use_id)
            if text is None:
                return f"There is no result with the id {tool_use_id!r}."
            page = text[max(0, offset) : max(0, offset) + PAGE]
            end = max(0, offset) + len(page)
            more = (
                f"\n[characters {max(0, offset)} to {end} of {len(text)}; go on with offset={end}]" if end < len(text) else ""
            )
            return page + more

        return read_tool_result


def result_text(result: Any) -> str:
    """Return the texts and JSON of a tool result as one text."""
    found = [
        item["text"] if "text" in item else as_json(item["json"])
        for item in result["content"]
        if "text" in item or "json" in item
    ]
    return "\n".join(found)
