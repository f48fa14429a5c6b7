"""Archive of the full texts of truncated messages, which the model reads with the tool ``read_cut_message``."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from strands import tool
from strands.types.content import Message

from strands_manga_memory.conversation.message_truncation import is_any_named, name_of, result_text
from strands_manga_memory.messages import spoken_text
from strands_manga_memory.messages.injection import READER
from strands_manga_memory.stores.encoding.values import as_json

if TYPE_CHECKING:
    from strands.agent.agent import Agent

PAGE = 4_000
"""Most characters that one call of the tool ``read_cut_message`` returns."""

MOST_CHARACTERS = 20_000_000
"""Most characters to keep in memory. Beyond this, the oldest texts are removed, and are later read from the log."""


class FullTextArchive:
    """Full texts of one agent's truncated messages, keyed by a short name that each truncated message shows.

    Args:
        log: Function that returns the untruncated messages of the conversation. None if no session stores the messages.

    Attributes:
        log: The argument ``log``. Without a log, only texts in memory can be read.
        is_offered: Whether the agent has been given the tool that reads these texts. Later agents of the conversation then get
            the tool too, because a changed list of tools would invalidate the provider's prompt cache.
    """

    __slots__ = ("_characters", "_lock", "_texts", "is_offered", "log")

    def __init__(self, log: Callable[[], Iterable[Message]] | None = None) -> None:
        self.is_offered = False
        self.log = log
        self._lock = threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._characters = 0

    def keep(self, agent: Agent | None, messages: Sequence[Message], cut: Mapping[int, Message]) -> None:
        """Keep the full texts of messages that are being truncated, and give the agent the tool that reads them.

        A full text that is already in memory is not replaced, because ``messages`` may contain a truncated form.

        Args:
            agent: The agent. Without an agent, no tool is given.
            messages: The messages before truncation.
            cut: The truncated messages, keyed by their position in ``messages``.
        """
        with self._lock:
            for at in cut:
                name = name_of(messages[at])
                if name and name not in self._texts:
                    self._texts[name] = _text_of(messages[at])
                    self._characters += len(self._texts[name])
            while self._characters > MOST_CHARACTERS and len(self._texts) > 1:
                self._characters -= len(self._texts.popitem(last=False)[1])
        self.offer(agent, cut.values())

    def offer(self, agent: Agent | None, messages: Iterable[Message]) -> None:
        """Give an agent the tool that reads truncated messages, if needed.

        The tool is needed if one of ``messages``, or an earlier message of the conversation, mentions it.
        """
        if agent is None or READER in agent.tool_names:
            return
        self.is_offered = self.is_offered or is_any_named(messages)
        if self.is_offered:
            agent.tool_registry.register_tool(self.read_cut_message)

    def read_message(self, name: str) -> str | None:
        """Return the full text of a message by the short name that its truncated form shows. None if the name is unknown.

        The log is searched before the texts in memory, because a redaction may have changed the message in the log.
        """
        for message in self.log() if self.log is not None and name else ():
            if name_of(message) == name:
                return _text_of(message)
        with self._lock:
            return self._texts.get(name)

    @tool(name=READER)
    def read_cut_message(self, name: str, offset: int = 0) -> str:
        """Read the full text of an earlier message that was shortened in the conversation.

        Args:
            name: The name given where the message was shortened.
            offset: Character to begin with; each call returns up to 4,000 characters.
        """
        text = self.read_message(name)
        return f"There is no message with the name {name!r}." if text is None else _page(text, offset)


def _text_of(message: Message) -> str:
    """Return the texts, tool inputs and tool results of a message, joined to one text."""
    found: list[str] = []
    for block in message["content"]:
        if "toolUse" in block:
            found.append(as_json(block["toolUse"]["input"]))
        elif "toolResult" in block:
            found.append(result_text(block["toolResult"]))
        elif text := spoken_text(block):
            found.append(text)
    return "\n".join(found)


def _page(text: str, offset: int) -> str:
    start = max(0, offset)
    page = text[start : start + PAGE]
    end = start + len(page)
    more = f"\n[characters {start} to {end} of {len(text)}; go on with offset={end}]" if end < len(text) else ""
    return page + more
