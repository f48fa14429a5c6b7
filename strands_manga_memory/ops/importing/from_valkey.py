"""ValkeySource: what the package ``strands-valkey-session-manager`` keeps (layout of version 0.1.0)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from redis import RedisError

from strands_manga_memory.ops.importing.from_redis import key_of, text_of
from strands_manga_memory.ops.importing.message_log import Record, read_conversation
from strands_manga_memory.ops.importing.source import Content, Found, damaged, reading, unreadable

_NAMES = re.compile(
    r"\Asession:(?P<session>[^:]+)(?::agent:(?P<agent>[^:]+)(?::message:(?P<number>\d+))?)?\Z", re.DOTALL
)  # no id of this package holds a colon


class ValkeySource:
    """Sessions of ``strands-valkey-session-manager``'s ``ValkeySessionManager``.

    All keys that begin with ``session:`` are scanned. Its records are documents of the JSON module; a copy of one as a plain
    string is read, too.

    Args:
        client: A redis-py client, of a cluster too.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, sorted by session and agent."""
        sessions: set[str] = set()
        heads: set[tuple[str, str]] = set()
        messages: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)  # numbers by key
        with reading("valkey", RedisError):
            names = sorted({text_of(key) for key in self._client.scan_iter(match="session:*", count=1000)})
        for name in names:
            match = _NAMES.match(name)
            if match is None:
                continue
            if match["agent"] is None:
                sessions.add(match["session"])
            elif match["number"] is None:
                heads.add((match["session"], match["agent"]))
            else:
                messages[match["session"], match["agent"]][name] = match["number"]
        for session_id, agent_id in sorted({*heads, *messages}):
            keys = messages[session_id, agent_id]
            if (session_id, agent_id) in heads:
                read = partial(self._read, session_id, agent_id, keys, has_root=session_id in sessions)
                yield Found(session_id, agent_id, "agent", read)
            else:
                what = f"its agent's record is gone; {len(keys)} messages are left"
                yield unreadable(session_id, agent_id, what, record=f"session:{session_id}:agent:{agent_id}")

    def _read(self, session_id: str, agent_id: str, messages: dict[str, str], *, has_root: bool) -> Content:
        head = self._record(f"session:{session_id}:agent:{agent_id}")
        records = [self._record(name, number) for name, number in messages.items()]
        content = read_conversation(session_id, agent_id, head, records)
        note = () if has_root else ("its session's record is gone in the source",)
        return Content(content.transferred, content.notes + note)

    def _record(self, name: str, number: str | None = None) -> Record:
        key = key_of(name)
        with reading("valkey", RedisError):
            is_plain = text_of(self._client.type(key)) == "string"
            data = self._client.get(key) if is_plain else self._client.execute_command("JSON.GET", key)
        if data is None:
            raise damaged(name, "it is gone")
        return Record(name, data, number)
