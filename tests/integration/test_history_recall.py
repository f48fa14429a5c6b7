"""HistoryRecall in a real agent, checked on what the model received."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.hooks import AfterInvocationEvent, BeforeToolCallEvent
from strands.types.content import Message
from strands.vended_plugins.context_injector import ContextInjector

from strands_manga_memory import ConversationScope, MangaMemory, TieredSessionManager
from strands_manga_memory.conversation import (
    EstimateCounter,
    HistoryRecall,
    ImportanceWeightedConversationManager,
    MicroCompaction,
    OverflowReduction,
    SummarySchedule,
    SummaryTrigger,
    TieredCompactionConversationManager,
    ToolResultCap,
    TurnEviction,
    VerifiedSummarizingConversationManager,
    VerifiedSummary,
    default_counter,
)
from strands_manga_memory.stores import InMemoryHotStore, SQLiteTable, open_table
from strands_manga_memory.testing import ScriptedModel
from tests.support import GuardedModel, WatchedStore
from tests.unit.session.support import interrupt_answers, tool_use

CAT = "By the way, my cat is called Momo."
COUNTER = default_counter()


def made(
    recall: HistoryRecall,
    *,
    model: Any = None,
    manager: Any = None,
    before: Sequence[Any] = (),
    **more: Any,
) -> Agent:
    return Agent(
        model=model or ScriptedModel(lambda _: "answer " * 30),
        conversation_manager=manager or SlidingWindowConversationManager(6),
        plugins=[*before, recall],
        **more,
    )


def talk(agent: Agent, turns: int = 10) -> None:
    for number in range(turns):
        agent(f"question {number} " + "about something else " * 5)


def is_summary(message: Message) -> bool:
    metadata: Any = message.get("metadata") or {}
    return "summary" in (metadata.get("custom") or {})


def quoted(agent: Agent) -> str:
    """Return the quotes in the last request; an empty text without any."""
    model: Any = agent.model
    blocks = [block for message in model.requests[-1].messages for block in message["content"]]
    return next((b["text"] for b in blocks if "<recalled_history>" in b.get("text", "")), "")


@pytest.mark.parametrize("includes_recall", [True, False])
def test_a_fixed_part_of_the_budget_is_reserved_for_quotes(includes_recall: bool) -> None:
    manager = ImportanceWeightedConversationManager(400, includes_recall=includes_recall)
    agent = made(HistoryRecall(100), manager=manager)
    model: Any = agent.model
    agent("hello")
    for number in range(30):
        agent(f"My cat number {number} is called Momo{number} and was born in Kyoto.")
    largest = 0
    for number in range(30):
        agent(f"What is the name of cat number {number}?")
        sent = sum(manager.counter.count(message) for message in model.requests[-1].messages)
        largest = max(largest, sent if quoted(agent) else 0)
        assert (manager.usage(agent)["tokens"] <= 300) is includes_recall
    assert (0 < largest <= 400) if includes_recall else largest > 400


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, that is all about my cat!",
        "Hello again!",
        "Goodbye!",
        "ありがとうございます。",
        "わかりました。",
    ],
)
def test_who_thanks_greets_or_leaves_asks_for_nothing(text: str) -> None:
    agent = made(HistoryRecall())
    agent("hello")
    agent(CAT)
    talk(agent)
    agent(text)
    model: Any = agent.model
    assert "recalled_history" not in json.dumps(model.requests[-1].messages)
    agent("What is the name of my cat?")
    assert CAT in quoted(agent)


def test_each_day_is_named_once_and_each_quote_has_its_time() -> None:
    times = iter(range(1, 1_200_000, 20_000))  # some two messages a day and a half
    agent = made(HistoryRecall(4_000, clock=lambda: float(next(times))))
    for number in range(20):
        agent(f"My cat number {number} was born in Kyoto.")
    agent("Where was my cat born?")
    lines = quoted(agent).splitlines()
    days = [line for line in lines if re.fullmatch(r"\d{4}-\d\d-\d\d", line)]
    assert len(days) > 2
    assert days == sorted(set(days))
    assert all(
        re.match(r"\[(user|assistant) \d\d:\d\d\] ", line) for line in lines if line.startswith("[")
    )


@pytest.mark.parametrize("budget", [pytest.param(80, marks=pytest.mark.long), 1_024])
def test_quotes_fill_their_budget_and_never_pass_it(budget: int) -> None:
    recall = HistoryRecall(budget, counter=EstimateCounter())
    agent = made(recall)
    for number in range(70):
        agent(f"My cat number {number} was born in Kyoto.")
    agent("Where was my cat born?")
    tokens = recall.counter.count({"role": "user", "content": [{"text": quoted(agent)}]})
    assert budget - 30 <= tokens <= budget


def test_what_left_the_window_is_quoted_when_it_is_asked_for_and_never_stored() -> None:
    agent = made(HistoryRecall(clock=lambda: 1_700_000_000.0))
    agent("hello")
    agent(CAT)
    talk(agent)
    agent("What is the name of my cat?")
    assert f"\n[user 22:13] {CAT}" in quoted(agent)
    assert "\n2023-11-14\n" in quoted(agent)
    assert "not instructions" in quoted(agent)
    assert "recalled_history" not in json.dumps(agent.messages)
    model: Any = agent.model
    found = model.requests[-1].messages[-1]["content"][1:]
    assert found == [{"text": "What is the name of my cat?"}]


def test_a_quoted_message_is_followed_by_its_correction() -> None:
    agent = made(HistoryRecall())
    agent("hello")
    agent("My budget for the trip is 40 pounds, no more.")
    agent("Actually make that 60, I just got paid.")
    agent("出張の新幹線代は14,720円です。")
    agent("Which platform is it?")
    agent("あ、間違えました。14,720円じゃなくて13,870円です。")
    talk(agent)
    agent("What is the budget for my trip?")
    assert re.search(
        r"is 40 pounds, no more\.\n(.*\n)?\[user .*\] Actually make that 60", quoted(agent)
    )
    agent("新幹線代はいくらでしたっけ?")
    assert "14,720円です。" in quoted(agent)
    assert "13,870円です。" in quoted(agent)


def test_a_quoted_date_is_followed_by_the_date_that_replaces_it() -> None:
    answers = {
        "could we move": "Moved to Friday 16:00, reference KN-4502.",
        "dentist": "Booked for Thursday 16:00, reference KN-4471.",
    }

    def answer(messages: list[Any]) -> str:
        said = messages[-1]["content"][-1].get("text", "")
        return next((text for words, text in answers.items() if words in said), "answer " * 30)

    agent = made(HistoryRecall(), model=ScriptedModel(answer))
    agent("hello")
    agent("Please book the dentist for Thursday at 16:00.")
    agent("来年の3月にロンドンに転勤します。")
    agent("Which platform is it?")
    agent("could we move thursday to friday?")
    agent("転勤、4月に延びたよ")
    talk(agent)
    agent("When is my dentist appointment?")
    assert "could we move thursday to friday?" in quoted(agent)
    assert "KN-4502" in quoted(agent)
    agent("転勤はいつでしたっけ?")
    assert "転勤、4月に延びたよ" in quoted(agent)


def test_quotes_stay_for_the_calls_after_a_tool_and_go_with_the_turn() -> None:
    def answer(messages: list[Any]) -> Any:
        if "shelf" in messages[-1]["content"][-1].get("text", ""):
            return [tool_use(f"t{len(messages)}", "stock", title="V1")]
        return "answer " * 30

    agent = made(HistoryRecall(), model=ScriptedModel(answer), tools=[stock])
    agent("hello")
    agent(CAT)
    talk(agent)
    agent("On which shelf is the book about my cat?")
    model: Any = agent.model
    first, second = (request.messages for request in model.requests[-2:])
    assert CAT in first[-1]["content"][0]["text"]
    assert [[*block] for block in second[-1]["content"]] == [["toolResult"]]
    assert second[-3] == first[-1]
    assert "recalled_history" not in json.dumps(agent.messages)
    agent("zzz")
    assert quoted(agent) == ""


def test_quotes_stay_in_a_turn_that_waited_for_an_approval() -> None:
    def answer(messages: list[Any]) -> Any:
        is_asked = "shelf" in messages[-1]["content"][-1].get("text", "")
        return [tool_use("t1", "stock", title="V1")] if is_asked else "answer " * 30

    agent = made(HistoryRecall(), model=ScriptedModel(answer), tools=[stock])
    agent.add_hook(lambda event: event.interrupt("approval", reason="?"), BeforeToolCallEvent)
    agent("hello")
    agent(CAT)
    talk(agent)
    agent(interrupt_answers(agent("On which shelf is the book about my cat?")))
    model: Any = agent.model
    first, second = (request.messages for request in model.requests[-2:])
    assert CAT in first[-1]["content"][0]["text"]
    assert second[-3] == first[-1]


def test_an_unreadable_history_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    reads = []

    def broken() -> Any:
        reads.append(len(reads))
        yield {"role": "user", "content": [{"text": CAT}], "tracking_id": "c1"}
        if len(reads) < 3:
            raise OSError("no disk")

    recall = HistoryRecall(history=broken)
    agent = made(recall)
    assert str(agent("hello")).startswith("answer")
    assert "could not be read" in caplog.text
    assert recall.search("cat") == []
    talk(agent, 5)
    assert reads == [0, 1, 2]
    assert next(hit.message.text for hit in recall.search("cat")) == CAT


# --- Whichever manager took it out ----------------------------------------------------------------


def verified() -> VerifiedSummarizingConversationManager:
    return VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=400, turns=5, keep_recent_turns=2),
        model=lambda _: "They talked.",
        trimmer=ImportanceWeightedConversationManager(300),
        summary_tokens=60,
        schedule=SummarySchedule(strategy="inline"),
    )


MANAGERS: dict[str, Any] = {
    "importance": lambda: ImportanceWeightedConversationManager(300),
    "verified": verified,
    "compaction": lambda: TieredCompactionConversationManager(
        [ToolResultCap(200), TurnEviction(), MicroCompaction(200), OverflowReduction()],
        window=2_000,
        trimmer=ImportanceWeightedConversationManager(300),
    ),
    "compaction with summaries": lambda: TieredCompactionConversationManager(
        [
            ToolResultCap(200),
            TurnEviction(),
            MicroCompaction(200),
            VerifiedSummary(verified()),
            OverflowReduction(),
        ],
        window=2_000,
    ),
    "sliding window": lambda: SlidingWindowConversationManager(6),
}


@tool
def stock(title: str) -> str:
    """Look up what is in stock."""
    return json.dumps({"title": title, "shelf": f"SH-{title}", "pad": ["in stock"] * 60})


@pytest.mark.parametrize("kind", MANAGERS)
def test_what_left_the_window_is_found_whichever_manager_took_it_out(kind: str) -> None:
    def answer(messages: list[Any]) -> Any:
        texts = [block.get("text", "") for block in messages[-1]["content"]]
        asked = next((text for text in texts if text.startswith("Is volume")), "")
        if not asked:
            return "Noted, thanks. " * 8
        title = f"V{asked.split()[2]}"
        return [tool_use(f"t{title}", "stock", title=title)]

    recall = HistoryRecall()
    agent = made(recall, model=ScriptedModel(answer), manager=MANAGERS[kind](), tools=[stock])
    said: set[str] = set()
    agent("hello")
    for number in range(16):
        agent(f"My book number {number} has the code QX{number:03}Z and a torn page.")
        agent(f"Is volume {number} on a shelf?")
        said |= {message["tracking_id"] for message in agent.messages if not is_summary(message)}
    agent("What next?")  # what the turn before said is taken in
    present = {message["tracking_id"]: message for message in agent.messages}
    gone = [n for n in range(16) if f"QX{n:03}Z" not in json.dumps(list(present.values()))]
    assert said - present.keys(), "nothing has left the window"
    for number in gone:
        [first, *_] = recall.search(f"What is the code QX{number:03}Z?")
        assert f"QX{number:03}Z" in first.message.text
    for number in range(14):
        assert any(
            f"SH-V{number}" in hit.message.text for hit in recall.search(f"shelf SH-V{number}")[:3]
        )
    texts = [hit.message.text for hit in recall.search("torn page, in stock, talked, thanks")]
    assert not [
        text
        for text in texts
        if "[…]" in text or "conversation_summary" in text or "characters cut" in text
    ]


# --- What must not come back ----------------------------------------------------------------------

SECRET = "my secret word is xyzzy"


def is_findable(recall: HistoryRecall, word: str = "xyzzy") -> bool:
    return any(word in hit.message.text for hit in recall.search(word))


def test_what_a_guardrail_redacts_in_its_turn_is_never_indexed() -> None:
    recall = HistoryRecall()
    agent = made(recall, model=GuardedModel(lambda _: "answer " * 30, secret="xyzzy"))
    agent("hello")
    agent(SECRET)
    assert not is_findable(recall)
    talk(agent)
    agent("What was my secret word?")
    assert "xyzzy" not in quoted(agent)
    assert not is_findable(recall)


@pytest.mark.parametrize("turns_before", [0, 3])
def test_nor_is_it_taken_from_the_log_of_the_same_turn(tmp_path: Path, turns_before: int) -> None:
    table = open_table(f"sqlite:///{tmp_path}/sessions.sqlite3")
    table.create_if_missing()
    for _ in range(2):
        session = TieredSessionManager("s1", durable=table)
        recall = HistoryRecall(history=session.records)
        agent = made(
            recall,
            model=GuardedModel(lambda _: "answer " * 30, secret="xyzzy"),
            session_manager=session,
        )
        talk(agent, turns_before)
        agent(SECRET)
        assert not is_findable(recall)
        talk(agent, 6)
        assert not is_findable(recall)
        session.close()


def test_what_is_changed_in_the_history_later_is_changed_in_the_index() -> None:
    recall = HistoryRecall()
    agent = made(recall)
    agent("hello")
    agent(SECRET)
    agent("fine")
    assert is_findable(recall)
    at = next(at for at, message in enumerate(agent.messages) if "xyzzy" in json.dumps(message))
    agent.messages[at] = {**agent.messages[at], "content": [{"text": "[redacted] plugh"}]}
    agent("so")
    assert not is_findable(recall)
    assert is_findable(recall, "plugh")
    next(message for message in agent.messages if "plugh" in json.dumps(message))["content"] = [
        {"text": "[gone]"}
    ]
    talk(agent)
    assert not is_findable(recall, "plugh")


def test_what_is_redacted_after_it_has_left_the_history_can_be_forgotten() -> None:
    recall = HistoryRecall()
    agent = made(recall)
    agent("hello")
    agent(SECRET)
    id_ = agent.messages[-2]["tracking_id"]
    talk(agent)
    assert id_ not in [message["tracking_id"] for message in agent.messages]
    assert is_findable(recall)
    recall.forget(id_)
    recall.forget("unknown")
    agent("What was my secret word?")
    assert "xyzzy" not in quoted(agent)
    assert not is_findable(recall)


def test_a_message_of_the_present_turn_can_be_forgotten_too() -> None:
    recall = HistoryRecall()
    agent = made(recall)
    agent.add_hook(
        lambda event: recall.forget(event.agent.messages[-2]["tracking_id"]), AfterInvocationEvent
    )
    agent(SECRET)
    del agent.messages[-2:]
    agent.messages.append({"role": "user", "content": [{"text": "hi"}]})
    agent("hello")
    assert not is_findable(recall)


@pytest.mark.parametrize("way", ["cleared", "replaced", "new list"])
def test_another_conversation_in_the_same_agent_sees_nothing_of_the_first(way: str) -> None:
    recall = HistoryRecall()
    agent = made(recall)
    agent("hello")
    agent(SECRET)
    talk(agent)
    assert is_findable(recall)
    others: list[Message] = [
        {"role": "user", "content": [{"text": "I am someone else, from Osaka."}]},
        {"role": "assistant", "content": [{"text": "Welcome."}]},
    ]
    if way == "cleared":
        agent.messages.clear()
    elif way == "replaced":
        agent.messages[:] = others
    else:
        agent.messages = others
    agent("What was my secret word?")
    assert "xyzzy" not in quoted(agent)
    assert not is_findable(recall)
    assert is_findable(recall, "Osaka") is (way != "cleared")


def test_a_deleted_session_is_forgotten(tmp_path: Path) -> None:
    table = open_table(f"sqlite:///{tmp_path}/sessions.sqlite3")
    table.create_if_missing()
    session = TieredSessionManager("s1", durable=table)
    recall = HistoryRecall(history=session.records)
    agent = made(recall, session_manager=session)
    agent(SECRET)
    talk(agent)
    assert is_findable(recall)
    session.delete_session()
    agent("What was my secret word?")
    assert "xyzzy" not in quoted(agent)
    assert not is_findable(recall)


# --- The tool, and settings -----------------------------------------------------------------------


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("way", ["rewound", "redacted"])
def test_removed_message_is_not_quoted(tmp_path: Path, way: str, *, by_another: bool) -> None:
    """A rewind or a redaction reaches the index of a live agent, also from another process."""
    path, scope = tmp_path / "s.db", ConversationScope("u1", "s1")
    question = "What are the names of the cats number 6 and number 7?"

    def build(memory: MangaMemory) -> Agent:
        options: dict[str, Any] = {"recall": True, "max_tokens": 800, "refresh": "turn"}
        return memory.agent(ScriptedModel(lambda _: "answer " * 30), scope=scope, **options)

    with MangaMemory.open(durable=f"sqlite:///{path}") as memory:
        agent = build(memory)
        agent("I look for a present.")
        for number in range(30):
            agent(f"My cat number {number} is called Momo{number} and was born in Kyoto.")
        agent(question)
        assert "Momo7 " in quoted(agent)
        with MangaMemory.open(durable=SQLiteTable(path)) as there:
            place = there if by_another else memory
            if way == "rewound":
                place.rewind(scope, 1)
            else:
                logged: list[Any] = list(place.session(scope).history())
                message = next(each for each in logged if "Momo7 " in str(each))
                redacting = build(place) if by_another else agent
                session: Any = redacting._session_manager
                session.redact_latest_message(
                    {**message, "content": [{"text": "[redacted]"}]}, redacting
                )
            agent(question)
            assert "Momo7 " not in quoted(agent)
            assert ("Momo6 " in quoted(agent)) is (way == "redacted")


def test_the_model_can_search_for_itself() -> None:
    call = [tool_use("t1", "search_history", query="cat name")]
    model = ScriptedModel(
        lambda messages: (
            call if messages[-1]["content"][0].get("text") == "please search" else "ok " * 30
        )
    )
    recall = HistoryRecall()
    agent = made(recall, model=model)
    agent(CAT)
    talk(agent)
    agent("please search")
    result = next(b["toolResult"] for b in agent.messages[-2]["content"] if "toolResult" in b)
    assert CAT in json.dumps(result["content"])
    talk(agent)
    assert not [
        hit for hit in recall.search("cat name Momo") if "recalled_history" in hit.message.text
    ]  # no quotes of quotes
    assert "search_history" not in made(HistoryRecall(offer_tool=False)).tool_names


# --- The facade -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "history", ["importance", pytest.param("summarize", marks=pytest.mark.long)]
)
def test_the_facade_hands_it_out_for_this_session_alone(memory: MangaMemory, history: Any) -> None:

    def start(user: str = "u1", session: str = "s1") -> Agent:
        model = ScriptedModel(lambda _: "answer " * 30)
        arguments = memory.agent_kwargs(
            user_id=user, session_id=session, history=history, max_tokens=800, recall=True
        )
        return Agent(model=model, **arguments)

    agent = start()
    manager: Any = agent.conversation_manager
    trimmer = getattr(manager, "trimmer", manager)
    assert (trimmer.max_tokens, trimmer.includes_recall) == (800, True)
    agent("hello")
    for number in range(24):
        agent(f"My cat number {number} is called Momo{number} and was born in Kyoto.")
    agent = start()
    model: Any = agent.model
    for number in range(0, 24, 4):
        agent(f"What is the name of cat number {number}?")
        # Summaries, too, are asked of this model.
        sent = [json.dumps(request.messages) for request in model.requests]
        found = next(text for text in reversed(sent) if f"of cat number {number}?" in text)
        assert f"Momo{number} " in found
    assert any("recalled_history" in json.dumps(request.messages) for request in model.requests)
    assert "search_history" in agent.tool_names
    for user, session in (("u1", "s2"), ("u2", "s1")):
        other = start(user, session)
        talk(other, 12)
        other("What is the name of cat number 1?")
        assert "Momo" not in quoted(other)


def test_the_log_is_read_only_when_something_has_left_the_history(tmp_path: Path) -> None:
    table = WatchedStore(open_table(f"sqlite:///{tmp_path}/t.sqlite3"))
    memory = MangaMemory.open(hot=InMemoryHotStore(), durable=table)

    def reads(turn: int) -> int:
        """Let a worker that keeps nothing answer one message."""
        arguments = memory.agent_kwargs(user_id="u1", session_id="s1", max_tokens=800, recall=True)
        agent = Agent(model=ScriptedModel(lambda _: "answer " * 30), **arguments)
        before = table.calls.count("query")
        agent(f"What is the name of cat number {turn}?")
        queries = table.calls.count("query") - before
        arguments["session_manager"].flush()
        return queries

    table.create_if_missing()
    counts = [reads(turn) for turn in range(25)]
    assert counts[:5] == [1, 0, 0, 0, 0], "a new conversation looks for an earlier log"
    recall, room = counts[-5:].count(1), counts[-5:].count(2)
    assert (recall, room) in ((5, 0), (4, 1)), "a turn that makes room reads the log"
    memory.close()


def test_blocks_of_other_plugins_are_no_part_of_the_question() -> None:
    agent = made(
        HistoryRecall(), before=[ContextInjector(lambda _: "The cat is Momo.", trigger="everyTurn")]
    )
    agent("hello")
    agent(CAT)
    talk(agent)
    agent("zzz")
    assert quoted(agent) == ""
    agent("And my cat?")
    assert CAT in quoted(agent)


@pytest.mark.parametrize("shown", [False, True])
def test_equal_results_are_quoted_once_and_not_if_one_is_shown(*, shown: bool) -> None:
    listed = "The book about cats is on shelf 12, beside the window of the second floor."

    @tool(name="stock")
    def same_stock(title: str) -> str:
        """Return where books are."""
        return listed

    def replies(messages: list[Any]) -> Any:
        if messages[-1]["content"][-1].get("text", "").startswith("look"):
            return [tool_use(f"t{len(messages)}", "stock", title="V1")]
        return "answer " * 30

    agent = made(HistoryRecall(), model=ScriptedModel(replies), tools=[same_stock])
    agent("look it up")
    agent("look again")
    talk(agent)
    if shown:
        agent("look once more")
    agent("On which shelf is the book about cats?")
    assert quoted(agent).count(listed) == (not shown)
