"""Erasure and export of one user in both tiers: all of their data, and no other."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory, TieredSessionManager
from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.language import SessionSummary
from strands_manga_memory.memory import CallablePreferenceSink, Owner, Preference, PreferenceOutbox
from strands_manga_memory.ops import import_user
from strands_manga_memory.stores import Codec, HotStore, InMemoryHotStore, RedisHotStore, Table
from strands_manga_memory.testing import ScriptedModel
from strands_manga_memory.user_data import export_user, forget_user
from tests import servers
from tests.faulty_stores import FaultyHotStore
from tests.support import WatchedStore, settle, store_signal

USERS = [("u1", None), ("u1", "a"), ("u10", None), ("u*", None), ("a:u1", None)]


@pytest.fixture
def memory(
    tables: tuple[Table, Table], valkey_server: servers.Valkey, unique: str
) -> Iterator[MangaMemory]:
    with valkey_server.client() as client:
        made = MangaMemory.open(
            RedisHotStore(client, prefix=unique, deadline=5), tables[0], memories=tables[1]
        )
        yield made
        made.close()


def talk(memory: MangaMemory, user: str, tenant: str | None, session: str, *texts: str) -> Agent:
    kwargs = memory.agent_kwargs(user_id=user, tenant=tenant, session_id=session)
    agent = Agent(model=ScriptedModel(), **kwargs)
    for text in texts:
        agent(text)
    agent._session_manager.flush()
    return agent


def everything(memory: MangaMemory, user: str, tenant: str | None) -> Any:
    return export_user(
        user, tenant=tenant, hot=memory.hot, durable=memory.durable, memories=memory.memories
    )


def test_one_user_goes_and_nobody_else(memory: MangaMemory) -> None:
    for user, tenant in USERS:
        for session in ("s1", "s2"):
            talk(
                memory,
                user,
                tenant,
                session,
                f"I am {user} of {tenant}. My favorite genre is horror.",
            )
        memory.finalize(ConversationScope(user, "s2", tenant=tenant))
        memory.user(user, tenant=tenant).recall()
    settle(memory)
    others = {(user, tenant): everything(memory, user, tenant) for user, tenant in USERS[1:]}
    assert len(everything(memory, "u1", None)["sessions"]) == 2
    report = memory.forget_user("u1")
    assert report.complete, report.left
    assert report.counts["sessions"] == 2
    assert report.counts["conversations"] == 2
    assert report.counts["memories"] >= 3
    gone = everything(memory, "u1", None)
    assert gone["sessions"] == gone["memories"] == gone["waiting_signals"] == []
    assert gone["overrides"] == {}
    left = {
        name: value
        for table in (memory.durable, memory.memories)
        for name, value in raw(table, "u1").items()
    }
    assert "horror" not in repr(left)
    assert {(user, t): everything(memory, user, t) for user, t in USERS[1:]} == others
    assert memory.forget_user("u1").counts == {}


def raw(table: Any, user: str) -> dict[str, Any]:
    """What the partitions of a user without tenant hold."""
    partitions = [user, f":{user}:s1", f":{user}:s2", f"user/:{user}"]
    return {
        f"{partition}/{number}": item
        for partition in partitions
        for number, item in enumerate(table.query(partition))
    }


def test_erasure_while_a_session_is_live(memory: MangaMemory) -> None:
    agent = talk(memory, "u1", None, "s1", "My favorite genre is XYZZY.")
    settle(memory)
    report = memory.forget_user("u1")
    assert report.complete, report.left
    agent("this turn learns of it")
    agent("hello again")
    agent._session_manager.flush()
    settle(memory)
    assert "XYZZY" not in repr(agent.messages)
    assert "XYZZY" not in repr(everything(memory, "u1", None)["sessions"])
    # What is said after it is found by the next erasure.
    assert len(everything(memory, "u1", None)["sessions"]) == 1
    assert memory.forget_user("u1").counts["sessions"] == 1
    assert everything(memory, "u1", None)["sessions"] == []


def test_report_counts_preferences_that_no_sink_has_taken(memory: MangaMemory) -> None:
    """A preference that waits for its sink is deleted, and counted as pending."""
    assert memory.memories is not None
    outbox = PreferenceOutbox(memory.memories, CallablePreferenceSink(lambda signal: None))
    store_signal(outbox, Owner("u1"), Preference("genre", "horror"))
    assert len(everything(memory, "u1", None)["waiting_signals"]) == 1
    report = memory.forget_user("u1")
    assert report.complete, report.left
    assert report.counts["pending_preferences"] >= 1
    assert everything(memory, "u1", None)["waiting_signals"] == []


def test_erasure_while_an_agent_of_this_process_is_saving(memory: MangaMemory) -> None:
    """A segment of the log waits for the tombstone, and a head for the search."""
    armed, buried, looked_at = threading.Event(), threading.Event(), threading.Event()

    def hold(name: str, item: Any = None, *_: Any, **__: Any) -> None:
        if name == "put" and armed.is_set() and item.get("state") != "deleted":
            assert "#LOG#" not in item.get("sk", "") or buried.wait(20)
            assert not item.get("sk", "").endswith("#HEAD") or looked_at.wait(20)

    def note(name: str, item: Any = None, *_: Any, **named: Any) -> None:
        if name == "put" and item.get("sk", "").endswith("#HEAD") and item["state"] == "deleted":
            buried.set()
        if name == "query" and named.get("attributes") == ["state", "member"]:
            looked_at.set()

    held: Any = WatchedStore(memory.durable, hold, note)
    mine = MangaMemory(hot=memory.hot, durable=held, memories=memory.memories)
    arguments = mine.agent_kwargs(user_id="u1", session_id="s1", flush_every=1)
    agent = Agent(model=ScriptedModel(), **arguments)
    agent("hello")
    agent._session_manager.flush()
    armed.set()
    agent("My favorite genre is XYZZY.")
    report = mine.forget_user("u1")
    assert looked_at.is_set()
    assert report.complete, report.left
    settle(mine)
    assert "XYZZY" not in repr(raw(memory.durable, "u1"))


def test_erasure_while_a_finalizer_is_at_work_wins(memory: MangaMemory) -> None:
    talk(memory, "u1", None, "s1", "My favorite genre is XYZZY.")
    settle(memory)

    def erase_meanwhile(lines: Any, *, max_tokens: int) -> SessionSummary:
        assert memory.forget_user("u1").complete
        return SessionSummary(text="The favorite genre is XYZZY.", preferences={"genre": "XYZZY"})

    assert memory.finalize(ConversationScope("u1", "s1"), model=erase_meanwhile) is None
    assert everything(memory, "u1", None)["memories"] == []


def test_a_change_record_written_during_the_erasure_is_erased(memory: MangaMemory) -> None:
    memory.user("u1").prefer("genre", "XYZZY")
    late: list[Any] = [memory.user("u1").preference_log.notify_agents]

    def end(name: str, *_: Any, **__: Any) -> None:
        if name == "batch_write" and late:
            late.pop()()

    memories: Any = WatchedStore(memory.memories, after=end)
    report = forget_user("u1", hot=memory.hot, durable=memory.durable, memories=memories)
    assert not late
    assert report.complete, report.left


def test_a_late_retraction_creates_no_hot_record_of_an_erased_user(memory: MangaMemory) -> None:
    user = memory.user("u1")
    user.prefer("genre", "XYZZY")
    said_at = time.time()
    assert memory.forget_user("u1").complete
    user.retract("m1", at=said_at)
    settle(memory)
    assert memory.hot.load("profile/u1/cache", [], touch=False).state == "deleted"


def test_an_imported_user_keeps_all_preferences_later(memory: MangaMemory, tmp_path: Path) -> None:
    """The import stores the statements, too, because preferences derive from them."""
    talk(memory, "u1", None, "s1", "My favorite genre is horror.", "I'm allergic to peanuts.")
    settle(memory)
    exported = everything(memory, "u1", None)
    with MangaMemory.open(
        "memory://", f"sqlite:///{tmp_path}/other.sqlite3", memories=True
    ) as other:
        for _ in range(2):
            import_user(exported, other)
        assert other.export_user("u1")["statements"] == exported["statements"]
        talk(other, "u1", None, "s2", "My favorite format is ebook.")
        settle(other)
        stored = {record.content for record in other.user("u1").recall(limit=None)}
    assert stored == {*(each["content"] for each in exported["memories"]), "format: ebook"}
    assert len(stored) == 3


def test_an_import_keeps_the_deletions_of_the_source(memory: MangaMemory, tmp_path: Path) -> None:
    """A later finalizing makes no deleted preference and no retracted text from the messages."""
    secret = "Is the shop in Narnia open?"
    agent = talk(memory, "u1", None, "s1", secret, "My favorite genre is horror.", "Is it open?")
    settle(memory)
    memory.user("u1").forget("preference#genre")
    memory.user("u1").retract(agent.messages[0]["tracking_id"], session_id="s1")
    exported = json.loads(json.dumps(everything(memory, "u1", None)))
    assert "horror" not in json.dumps(exported["deletions"])
    url = f"sqlite:///{tmp_path}/other.sqlite3"
    with MangaMemory.open("memory://", url, memories=True) as other:
        for _ in range(2):
            import_user(exported, other)
        other.finalize(ConversationScope("u1", "s1"))
        user = other.user("u1")
        assert user.recall(type="preference") == []
        assert "Narnia" not in repr([*user.recall(limit=None), *user.recall(type="episode")])
        talk(other, "u1", None, "s2", "My favorite genre is horror.")
        settle(other)
        assert [each.content for each in user.recall(type="preference")] == ["genre: horror"]


def test_the_last_deletions_are_kept(memory: MangaMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that is deleted a second time counts as deleted last."""
    monkeypatch.setattr("strands_manga_memory.memory.preference_log._MOST_DELETIONS", 2)
    user = memory.user("u1")
    kept: list[set[str]] = []
    for content in ("A lighthouse.", "Stamps.", "A lighthouse.", "Coins."):
        assert user.forget(user.remember(content).memory_id)
        kept.append(set(everything(memory, "u1", None)["deletions"]["forgotten"]))
    lighthouse, stamps = kept[0], kept[1] - kept[0]
    assert lighthouse < kept[3]
    assert not stamps & kept[3]
    assert len(kept[3]) == 2


def test_an_import_restores_no_memory_that_the_target_has_deleted(memory: MangaMemory) -> None:
    talk(memory, "u1", None, "s1", "My favorite genre is horror.", "When does Uzumaki 3 arrive?")
    memory.finalize(ConversationScope("u1", "s1"))
    user = memory.user("u1")
    user.prefer("format", "paper")
    kept = user.record_feedback("Great.")
    for content in ("Owns a lighthouse.", "Collects stamps."):
        user.remember(content)
    exported = everything(memory, "u1", None)
    for each in exported["memories"]:
        if each["memory_id"] != kept.memory_id and each["type"] not in ("episode", "question"):
            user.forget(each["memory_id"])
    report = import_user(exported, memory)
    assert (report.memories, report.left_out) == (0, len(exported["memories"]) - 1)
    assert [each["content"] for each in everything(memory, "u1", None)["memories"]] == ["Great."]
    user.remember("Collects stamps.")  # after the deletion
    later = everything(memory, "u1", None)
    memory.user("u1").forget(kept.memory_id)
    assert import_user(later, memory).left_out == 1


def test_an_import_restores_no_summary_of_a_retracted_message(memory: MangaMemory) -> None:
    agent = talk(memory, "u1", None, "s1", "My favorite genre is horror.", "Is Uzumaki 3 there?")
    talk(memory, "u1", None, "s2", "Is Berserk 7 there?", "I like tea.")
    memory.finalize(ConversationScope("u1", "s1"))
    memory.finalize(ConversationScope("u1", "s2"))
    exported = everything(memory, "u1", None)
    memory.user("u1").retract(agent.messages[0]["tracking_id"], session_id="s1")
    import_user(exported, memory)
    left = memory.user("u1").recall(limit=None)
    assert {each.metadata.get("session_id") for each in left} == {"s2"}
    assert "horror" not in repr(left)


def test_no_import_with_a_wrong_agent_id_is_stored(memory: MangaMemory, tmp_path: Path) -> None:
    talk(memory, "u1", None, "s1", "I want horror")
    talk(memory, "u1", None, "s2", "I want romance")
    settle(memory)
    exported = everything(memory, "u1", None)
    exported["sessions"][1]["agent_id"] = ""
    with MangaMemory.open(
        "memory://", f"sqlite:///{tmp_path}/other.sqlite3", memories=True
    ) as other:
        with pytest.raises(ValueError, match="exported must be a result of export_user"):
            import_user(exported, other)
        assert not other.users().users


def test_an_erasure_that_is_cut_off_is_completed_by_the_next(memory: MangaMemory) -> None:
    for session in ("s1", "s2", "s3"):
        talk(memory, "u1", None, session, "I want horror")
    settle(memory)
    for calls in (3, 9, 15):
        left = iter(range(calls))

        def die(*_: Any, left: Any = left, **__: Any) -> None:
            if next(left, None) is None:
                raise StoreUnavailableError("cut off")

        dying: Any = WatchedStore(memory.durable, die)
        with pytest.raises(StoreUnavailableError):
            forget_user("u1", hot=memory.hot, durable=dying, memories=memory.memories)
    report = memory.forget_user("u1")
    assert report.complete, report.left
    assert everything(memory, "u1", None)["sessions"] == []


def test_an_export_is_json_with_everything(memory: MangaMemory) -> None:
    talk(memory, "u1", "t", "s1", "My favorite genre is horror.")
    memory.finalize(ConversationScope("u1", "s1", tenant="t"))
    settle(memory)
    exported = json.loads(json.dumps(memory.export_user("u1", tenant="t")))
    [session] = exported["sessions"]
    assert session["session_id"] == "s1"
    assert "My favorite genre is horror." in repr(session["records"])
    assert {known["type"] for known in exported["memories"]} >= {
        "preference",
        "interaction_summary",
        "episode",
    }
    assert memory.export_user("u1")["sessions"] == []


def hot_texts(valkey: servers.Valkey, prefix: str) -> bytes:
    """Return all that the hot tier has under a prefix."""
    with valkey.client() as client:
        keys = [key for key in client.scan_iter(f"*{prefix}*") if client.type(key) == b"hash"]
        return b"".join(part for key in keys for p in client.hgetall(key).items() for part in p)


@pytest.mark.parametrize("given", [None, InMemoryHotStore()], ids=["none", "memory"])
def test_an_erasure_without_the_hot_tier_says_so_and_leaves_to_the_next_what_it_needs(
    given: HotStore | None, tables: tuple[Table, Table], valkey_server: servers.Valkey, unique: str
) -> None:
    durable, memories = tables
    with valkey_server.client() as client:
        plain = Codec(compress_from=1 << 40)
        memory = MangaMemory.open(
            RedisHotStore(client, prefix=unique, deadline=5),
            durable,
            memories=memories,
            codec=plain,
        )
        talk(memory, "u", None, "s", "I love quokkas.")
        settle(memory)
        exported = export_user("u", hot=given, durable=durable, memories=memories)
        assert [place.partition(":")[0] for place in exported["not_looked_at"]] == ["hot tier"]
        assert everything(memory, "u", None)["not_looked_at"] == []
        for _ in range(2):
            report = forget_user("u", hot=given, durable=durable, memories=memories)
            assert not report.complete
            assert report.left == []
            assert [place.partition(":")[0] for place in report.not_looked_at] == ["hot tier"]
            assert export_user("u", hot=given, durable=durable, memories=memories)["sessions"] == []
        assert memory.sessions("u").sessions == ()
        assert b"quokkas" in hot_texts(valkey_server, unique)
        assert forget_user("u", hot=memory.hot, durable=durable, memories=memories).complete
        assert b"quokkas" not in hot_texts(valkey_server, unique)
        for hot in (memory.hot, given):
            again = forget_user("u", hot=hot, durable=durable, memories=memories)
            assert again.complete
            assert "sessions" not in again.counts
        memory.close()


def test_a_deletion_without_the_hot_tier_is_completed_by_who_has_it(memory: MangaMemory) -> None:
    talk(memory, "u", None, "s", "one")
    TieredSessionManager(ConversationScope("u", "s"), durable=memory.durable).delete_session()
    assert not forget_user("u", hot=None, durable=memory.durable, memories=memory.memories).complete
    assert memory.forget_user("u").complete
    assert forget_user("u", hot=None, durable=memory.durable, memories=memory.memories).complete


def test_sessions_without_a_hot_tier_are_erased_without_one(tables: tuple[Table, Table]) -> None:
    memory = MangaMemory.open(durable=tables[0], memories=tables[1])
    talk(memory, "u", None, "s", "one")
    assert memory.export_user("u")["not_looked_at"] == []
    assert memory.forget_user("u").complete
    memory.close()


@pytest.mark.parametrize(
    "damage", [{"user": 5}, {"tenant": ["x"]}, {"user": None, "tenant": "other"}], ids=repr
)
def test_session_with_a_damaged_entry_is_erased(
    memory: MangaMemory, damage: dict[str, Any]
) -> None:
    talk(memory, "u", None, "s", "one")
    [row] = [row for row in memory.durable.query("user/:u") if row.get("session")]
    memory.durable.put({**row, **damage})
    assert [one["session_id"] for one in memory.export_user("u")["sessions"]] == ["s"]
    assert memory.forget_user("u").complete
    assert memory.export_user("u")["sessions"] == []


@pytest.mark.parametrize("session_id", ["s", "s 1/2:3", "長い" * 100])
@pytest.mark.parametrize("damaged", [None, 5, "", "another"])
def test_a_session_whose_entry_has_no_session_id_is_exported_and_erased(
    memory: MangaMemory, damaged: Any, session_id: str
) -> None:
    """The id is taken from the entry's key or, if the key has a shortened id, the expiry index."""
    talk(memory, "u", None, session_id, "one")
    talk(memory, "u", None, "intact", "two")
    [row] = [row for row in memory.durable.query("user/:u") if row.get("session") == session_id]
    memory.durable.put({**row, "session": damaged})
    exported = memory.export_user("u")
    assert {one["session_id"] for one in exported["sessions"]} == {session_id, "intact"}
    assert exported["unreadable"] == []
    report = memory.forget_user("u")
    assert report.complete, report.left
    assert report.counts["sessions"] == 2
    assert memory.export_user("u")["sessions"] == []
    assert [row for row in memory.durable.query(row["sk"]) if row.get("state") != "deleted"] == []


def test_the_expiry_entry_of_a_damaged_conversation_is_erased(memory: MangaMemory) -> None:
    talk(memory, "u", None, "s", "one")
    [head] = [row for row in memory.durable.query(":u:s") if row["sk"].endswith("#HEAD")]
    memory.durable.put({"session_id": ":u:s", "sk": head["sk"]})
    assert memory.forget_user("u").counts["expiry_index"] == 1
    assert list(memory.durable.query("ended/:u:s/A:default")) == []


def test_an_entry_without_a_session_of_the_user_is_named_and_erased(memory: MangaMemory) -> None:
    talk(memory, "u", None, "s", "one")
    talk(memory, "another", None, "s", "two")
    keys = ("damaged", ":another:s", ":u:%zz")
    for key in keys:
        memory.durable.put({"session_id": "user/:u", "sk": key, "session": 5})
    names = {f"user/:u/{key}" for key in keys}
    assert set(memory.export_user("u")["unreadable"]) == names
    assert memory.forget_user("u").complete
    assert memory.export_user("u")["unreadable"] == []
    assert len(memory.export_user("another")["sessions"]) == 1


def test_an_unreadable_entry_of_a_session_with_records_is_left(memory: MangaMemory) -> None:
    """Without the session id, the records of the session cannot be deleted."""
    memory.durable.put({"session_id": "user/:u", "sk": ":u:%zz", "session": 5})
    memory.durable.put({"session_id": ":u:%zz", "sk": "A:default#HEAD"})
    assert memory.forget_user("u").left == ["user/:u/:u:%zz"]


def test_export_raises_while_the_hot_tier_is_down(memory: MangaMemory) -> None:
    """The export would lack what only the hot tier has."""
    talk(memory, "u1", None, "s1", "My favorite genre is horror.")
    settle(memory)
    hot: Any = FaultyHotStore(memory.hot)
    assert export_user("u1", hot=hot, durable=memory.durable, memories=memory.memories)["overrides"]
    hot.down = True
    with pytest.raises(StoreUnavailableError):
        export_user("u1", hot=hot, durable=memory.durable, memories=memory.memories)


def test_interrupted_import_is_completed(memory: MangaMemory, tables: tuple[Table, Table]) -> None:
    for content in ("Owns volume 3 of Uzumaki.", "Collects lighthouse postcards."):
        memory.user("u1").remember(content)
    exported = {**memory.export_user("u1"), "user_id": "u2"}

    def end(name: str, item: Any = None, *_: Any, **__: Any) -> None:
        if name == "put" and item["memory_id"] == "~by_age":
            raise StoreUnavailableError("the process ends here")

    interrupted: Any = WatchedStore(tables[1], end)
    with (
        pytest.raises(StoreUnavailableError),
        MangaMemory.open(None, tables[0], memories=interrupted) as other,
    ):
        import_user(exported, other)
    import_user(exported, memory)
    assert len(memory.user("u2").recall(query="volume")) == 2
