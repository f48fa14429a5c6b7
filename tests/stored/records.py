"""Stored records of both tiers as one JSON value, with a record of every kind.

``python -m tests.stored.records`` writes the file of the format that this release writes. The file
of a format that was released is never written again: it is what users have.
"""

import base64
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from strands import Agent, tool

from strands_manga_memory import ConversationScope, InMemoryHotStore, MangaMemory
from strands_manga_memory.conversation import ImportanceWeightedConversationManager
from strands_manga_memory.stores import HotWrite
from strands_manga_memory.testing import FakeClock, ScriptedModel

FOLDER = Path(__file__).parent
FORMAT = 3
"""Number of the format that this release writes."""
USER = "u-1"
SESSIONS = ("whole", "trimmed", "redacted", "deleted")


class Hot(InMemoryHotStore):
    """A hot store that outlives its process, as a server does, by what was written to it."""

    survives_process = True

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.written: dict[str, HotWrite] = {}

    def write(self, conversation: str, write: HotWrite) -> bool:
        """Write, and keep what is there then as one write."""
        before = self.written.get(conversation)
        fields = {} if before is None or write.replace else dict(before.fields)
        fields = {n: d for n, d in fields.items() if n not in write.removed} | dict(write.fields)
        whole = {**vars(write), "expect": None, "fields": fields, "removed": (), "replace": False}
        self.written[conversation] = HotWrite(**whole)
        return super().write(conversation, write)


@tool
def look_up(title: str) -> dict[str, Any]:
    """Look a title up.

    Args:
        title: Which.
    """
    return {"status": "success", "content": [{"json": {"title": title, "volumes": 15, "yen": 770}}]}


def opened(folder: Path, hot: Hot, clock: FakeClock) -> MangaMemory:
    """Return a memory on the tiers in a folder."""
    return MangaMemory.open(
        hot=hot, durable=f"sqlite:///{folder}/shop.sqlite3", memories=True, clock=clock
    )


def agent_of(memory: MangaMemory, session: str, script: Any = "はい、そうです。") -> Agent:
    """Return an agent of one of the sessions."""
    options: Any = memory.agent_kwargs(user_id=USER, session_id=session)
    if session == "trimmed":
        options["conversation_manager"] = ImportanceWeightedConversationManager(max_tokens=260)
    return Agent(model=ScriptedModel(script), tools=[look_up], callback_handler=None, **options)


def speak(memory: MangaMemory) -> None:
    """Say something in each session; the last turns stay in the hot tier alone."""
    call = {"toolUse": {"toolUseId": "t-1", "name": "look_up", "input": {"title": "よつばと！"}}}
    for session in SESSIONS:
        agent = agent_of(memory, session, [[call], *["はい、そうです。"] * 20])
        agent("「よつばと！」の第15巻はありますか？")
        agent.state.set("cart", {"items": ["yotsuba-15"], "total": 770})
        agent("I love seinen manga. My favorite author is Naoki Urasawa.")
        if session == "redacted":
            redacted = {**agent.messages[-1], "content": [{"text": "[redacted]"}]}
            agent._session_manager.redact_latest_message(redacted, agent)
        for number in range(9 if session == "trimmed" else 1):
            agent(
                f"Please tell me about volume {number} of Berserk, and what it costs in yen today."
            )
    memory.session(ConversationScope(USER, "deleted")).delete_session()
    memory.user(USER).remember("Collects first editions.")


def told(memory: MangaMemory) -> dict[str, Any]:
    """Return what this release reads of all sessions and of the user, as JSON."""
    sessions = {}
    for session in SESSIONS:
        agent = agent_of(memory, session)
        history = list(memory.session(ConversationScope(USER, session)).history())
        sessions[session] = {
            "view": agent.messages,
            "history": history,
            "cart": agent.state.get("cart"),
        }
    memories = sorted(record.content for record in memory.user(USER).recall(limit=50))
    value: dict[str, Any] = json.loads(json.dumps({"sessions": sessions, "memories": memories}))
    return value


def dumped(folder: Path, hot: Hot) -> dict[str, Any]:
    """Return what both tiers hold as JSON values."""
    with closing(sqlite3.connect(folder / "shop.sqlite3")) as database:
        durable = list(database.iterdump())
    hashes = {
        name: {
            **vars(write),
            "fields": {
                field: base64.b64encode(data).decode() for field, data in write.fields.items()
            },
        }
        for name, write in hot.written.items()
    }
    return {"durable": durable, "hot": hashes}


def brought_back(stored: dict[str, Any], folder: Path, clock: FakeClock) -> Hot:
    """Put what was dumped into tiers; return the hot one."""
    with closing(sqlite3.connect(folder / "shop.sqlite3")) as database:
        database.executescript("\n".join(stored["durable"]))
    hot = Hot(clock)
    for name, write in stored["hot"].items():
        fields = {field: base64.b64decode(data) for field, data in write["fields"].items()}
        hot.write(name, HotWrite(**{**write, "fields": fields}))
    return hot


def main() -> None:
    """Write the file of this release's format."""
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), FakeClock(1_800_000_000.0)
        hot = Hot(clock)
        with opened(folder, hot, clock) as memory:
            speak(memory)
            stored = {"at": clock(), **dumped(folder, hot)}
        (folder / "again").mkdir()
        with opened(
            folder / "again", brought_back(stored, folder / "again", clock), clock
        ) as memory:
            stored["told"] = told(memory)
    path = FOLDER / f"format_{FORMAT}.json"
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
