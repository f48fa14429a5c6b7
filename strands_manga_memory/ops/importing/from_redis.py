"""RedisSource: what the package ``strands-redis-session-manager`` keeps (layout of version 0.1.0)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from redis import RedisError, ResponseError

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.ops.importing.message_log import Record, read_conversation
from strands_manga_memory.ops.importing.source import Content, Found, damaged, json_object, reading, unreadable
from strands_manga_memory.session.transfer import TransferredOrchestrator

NAMESPACE = "strands:session"
"""The package's default namespace."""

_SPECIAL = re.compile(r"([*?\[\]\\])")
_MESSAGE = re.compile(r"\A(?P<agent>.*):msg:(?P<number>\d+)\Z", re.DOTALL)
_AT_ONCE = 500


@dataclass
class _Keys:
    """Keys of a namespace, by what their records say they are: ids may hold colons, so names alone can be read in two ways."""

    agents: dict[str, tuple[str, str]] = field(default_factory=dict)  # session and agent
    orchestrators: dict[str, tuple[str, str]] = field(default_factory=dict)
    messages: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    sessions: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)  # sessions of a namespace below this one
    unreadable: dict[str, CorruptRecordError] = field(default_factory=dict)


class RedisSource:
    """Sessions of ``strands-redis-session-manager``'s ``RedisSessionManager``. All keys of its namespace are scanned.

    Args:
        client: A redis-py client, of a cluster too.
        namespace: The manager's ``namespace``.
    """

    def __init__(self, client: Any, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._prefix = f"{namespace.rstrip(':')}:"

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, sorted by key."""
        keys = self._keys()
        for name, error in sorted(keys.unreadable.items()):
            yield unreadable(name.removeprefix(self._prefix), name, str(error), record=name)
        for name, (session_id, agent_id) in sorted(keys.agents.items()):
            if session_id not in keys.foreign:
                read = partial(
                    self._read, session_id, agent_id, name, keys.messages.pop(name, {}), has_root=session_id in keys.sessions
                )
                yield Found(session_id, agent_id, "agent", read)
        for name, (session_id, id_) in sorted(keys.orchestrators.items()):
            if session_id not in keys.foreign:
                yield Found(session_id, id_, "orchestrator", partial(self._read_orchestrator, name))
        for name, messages in sorted(keys.messages.items()):
            if name not in keys.agents:
                session_id, _, agent_id = name.removeprefix(self._prefix).partition(":agent:")
                what = f"its agent's record is gone; {len(messages)} messages are left"
                yield unreadable(session_id, agent_id, what, record=name)

    def _keys(self) -> _Keys:
        found, others = _Keys(), []
        for name in self._scan():
            if match := _MESSAGE.match(name):
                found.messages[match["agent"]][int(match["number"])] = name
            else:
                others.append(name)
        self._sort(others, found)
        # What looks like the message of an agent that is not there may be an agent of such a name.
        orphans = [name for agent, names in found.messages.items() if agent not in found.agents for name in names.values()]
        self._sort(orphans, found)
        for name in found.agents:
            if match := _MESSAGE.match(name):
                found.messages[match["agent"]].pop(int(match["number"]), None)
        found.messages = defaultdict(dict, {agent: names for agent, names in found.messages.items() if names})
        return found

    def _sort(self, names: Sequence[str], found: _Keys) -> None:
        """Put keys where their records say they belong."""
        for name, data in zip(names, self._values(names), strict=True):
            if data is None:  # an index, or gone meanwhile
                continue
            try:
                record = json_object(data, record=name)
            except CorruptRecordError as error:
                found.unreadable[name] = error
                continue
            session = record.get("session_id")
            agent, id_ = f":agent:{record.get('agent_id')}", f":multi_agent:{record.get('id')}"
            if "session_type" in record and name.endswith(":session"):
                there = name.removeprefix(self._prefix).removesuffix(":session")
                (found.sessions if session == there else found.foreign).add(there)
            elif "agent_id" in record and name.endswith(agent):
                found.agents[name] = (name.removeprefix(self._prefix).removesuffix(agent), record["agent_id"])
            elif "type" in record and name.endswith(id_):
                found.orchestrators[name] = (name.removeprefix(self._prefix).removesuffix(id_), record["id"])
            elif not _MESSAGE.match(name):
                found.unreadable[name] = damaged(name, "it is none of the records that belong here")

    def _read(self, session_id: str, agent_id: str, name: str, messages: dict[int, str], *, has_root: bool) -> Content:
        with reading("redis", RedisError):
            listed = [int(number) for number in self._client.zrange(f"{name}:msgs", 0, -1)]
        [head] = self._values([name])
        if head is None:
            raise damaged(name, "it is gone")
        values = zip(messages.items(), self._values([*messages.values()]), strict=True)
        records = [Record(key, data, str(number)) for (number, key), data in values if data is not None]
        notes = [] if has_root else ["its session's record is gone in the source"]
        lost = len({*listed} - {int(record.number or 0) for record in records})
        if lost:
            notes.append(f"{lost} messages that the source lists are gone there")
        if messages and not listed:
            notes.append("its list of messages is gone in the source; those that are left were taken")
        if lost and not records:
            raise damaged(name, f"all {lost} messages that it lists are gone")
        content = read_conversation(session_id, agent_id, Record(name, head), records, listed=listed or None)
        return Content(content.transferred, (*content.notes, *notes))

    def _read_orchestrator(self, name: str) -> Content:
        [data] = self._values([name])
        if data is None:
            raise damaged(name, "it is gone")
        return Content(TransferredOrchestrator(json_object(data, record=name)))

    def _scan(self) -> Iterator[str]:
        pattern = _SPECIAL.sub(r"\\\1", self._prefix) + "*"
        with reading("redis", RedisError):
            names = {text_of(key) for key in self._client.scan_iter(match=pattern, count=1000)}
        return iter(sorted(names))

    def _values(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the strings under keys; None for what is none, or is gone."""
        values: list[bytes | None] = []
        with reading("redis", RedisError):
            for start in range(0, len(names), _AT_ONCE):
                pipe = self._client.pipeline(transaction=False)
                for name in names[start : start + _AT_ONCE]:
                    pipe.get(key_of(name))
                answers = pipe.execute(raise_on_error=False)
                for answer in answers:
                    if isinstance(answer, Exception) and "WRONGTYPE" not in str(answer):
                        raise answer
                values += [None if isinstance(answer, ResponseError) else answer for answer in answers]
        return values


def text_of(key: bytes | str) -> str:
    """Return a key as text, whatever its bytes are."""
    return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")


def key_of(name: str) -> bytes:
    """Return the key that ``text_of`` was given."""
    return name.encode("utf-8", "surrogateescape")
