"""Card numbers and other identifiers reach no state, summary, memory, quote or open export."""

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager

from strands_manga_memory import (
    AesGcmCipher,
    ConversationScope,
    HistoryRecall,
    MangaMemory,
    StateCoordinator,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummarySchedule, SummaryTrigger
from strands_manga_memory.language import SHOP
from strands_manga_memory.memory import PiiPolicy
from strands_manga_memory.state import export_for_human
from strands_manga_memory.testing import ScriptedModel
from tests.support import run, settle, stub_tool
from tests.unit.session.support import tool_use

CARDS = [
    "4539148803436467", "4539 1488 0343 6467", "4539-1488-0343-6467", "4539 1488\n0343 6467",
    "４５３９ １４８８ ０３４３ ６４６７", "４５３９ー１４８８ー０３４３ー６４６７",
    "2024 4539 1488 0343 6467", "3782 822463 10005",
]  # fmt: skip


def digits(text: str) -> str:
    """Return the digits of a text, full-width ones too, without anything between them."""
    return "".join(str(int(sign)) for sign in text if sign.isdecimal())


def holds_card(text: str) -> bool:
    return any(digits(card)[-15:] in digits(text) for card in CARDS)


def injected(model: ScriptedModel, agent: Agent) -> str:
    """Return what the requests of a model held beyond the messages of the agent's history."""
    said = {
        block["text"]
        for message in agent.messages
        for block in message["content"]
        if "text" in block
    }
    blocks = [
        block["text"]
        for request in model.requests
        for message in request.messages
        for block in message["content"]
        if "text" in block and block["text"] not in said
    ]
    return "\n".join([*blocks, *(str(request.system_prompt_content) for request in model.requests)])


@pytest.mark.parametrize("card", CARDS)
def test_card_number_is_no_entity_and_is_not_in_the_injected_state(card: str) -> None:
    model = ScriptedModel()
    agent = Agent(model=model, plugins=[StateCoordinator()])
    agent(f"Charge {card} for order ORD-12345")
    agent("and volume 3")
    state = json.dumps(agent.state.get(), ensure_ascii=False)
    assert "ORD-12345" in state
    assert not holds_card(state)
    assert "ORD-12345" in injected(model, agent)
    assert not holds_card(injected(model, agent))


@pytest.mark.parametrize(
    "text",
    [
        "My Number is 1234-5678-9018",
        "口座番号は 1234567 です",
        "account no. 30294817",
        "the order form of Sato, 2-10-7 Dogenzaka, Shibuya-ku, Tokyo 150-0043",
        "passport no. TK4482913",
        "call me, 415-555-2671",
    ],
)
def test_other_personal_data_is_no_entity_of_another_kind(text: str) -> None:
    """A telephone number may be an entity, but not an ISBN whose check digit it happens to have."""
    assert {entity.type for entity in SHOP.find(text)} <= {"phone"}


def test_parcel_number_is_neither_a_phone_nor_personal_data() -> None:
    text = "伝票番号 4012-3456-7890 の荷物"
    assert [entity.type for entity in SHOP.find(text)] == []
    assert PiiPolicy().applied(text) == text


def test_card_numbers_are_in_no_summary_whoever_wrote_it() -> None:
    """The cards stand in user messages, in an answer, in the input of a tool and in its result."""

    @tool
    def find_payment(card: str) -> str:
        """Find a payment."""
        return json.dumps({"card": "5425233430109903", "state": "paid", "order": "ORD-12345"})

    prompts: list[str] = []

    def summarize(prompt: Any) -> str:
        prompts.append(f"{prompt.instructions}\n{prompt.source}")
        return "The user paid ORD-12345 with the card 4539 1488 0343 6467."

    replies: list[Any] = [
        [tool_use("t1", "find_payment", card="4539148803436467")],
        "The card 4539-1488-0343-6467 was charged for ORD-12345.",
    ]
    manager = VerifiedSummarizingConversationManager(
        SummaryTrigger(turns=4, keep_recent_turns=1),
        model=summarize,
        schedule=SummarySchedule(strategy="inline"),
    )
    agent = Agent(model=ScriptedModel(replies), tools=[find_payment], conversation_manager=manager)
    agent("My card is 4539 1488\n0343 6467, please check ORD-12345.")
    for number in range(8):
        agent(f"Please also add volume {number} of One Piece, and I prefer the English edition.")
    summary = manager.summary(agent)
    shown = json.dumps(
        [agent.messages, [fact.text for fact in summary.facts]], ensure_ascii=False, default=str
    )
    assert "ORD-12345" in shown
    assert prompts
    for text in (shown, *prompts):
        assert not holds_card(text)
        assert "5425233430109903" not in text


def test_card_numbers_of_evicted_messages_and_tool_results_are_not_quoted() -> None:
    find_payment = stub_tool(
        "find_payment", "Payment by card 4539 1488 0343 6467 of 2,980 yen for the gardening book"
    )
    replies: list[Any] = [[tool_use("t1", "find_payment")]]
    model = ScriptedModel([*replies, *["answer " * 30] * 12])
    agent = Agent(
        model=model,
        tools=[find_payment],
        conversation_manager=SlidingWindowConversationManager(4),
        plugins=[HistoryRecall()],
    )
    agent("I paid for the gardening book with 4539-1488-0343-6467.")
    for number in range(6):
        agent(f"Tell me about volume {number}.")
    agent("With which card did I pay for the gardening book?")
    assert "gardening book" in injected(model, agent)
    first = [r for r in model.requests if "gardening" in json.dumps(r.messages[-1])][-1]
    assert "[card]" in json.dumps(first.messages)
    assert not holds_card(json.dumps(first.messages, ensure_ascii=False))


def test_card_number_is_in_no_memory_and_in_no_export_for_a_human(memory: MangaMemory) -> None:
    agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1", task_state=True)
    agent("My card is 4539 1488 0343 6467. I prefer horror.")
    memory.user("u1").remember("pays with 4539148803436467")
    exported = memory.export_user("u1")
    assert not holds_card(json.dumps(exported["memories"], ensure_ascii=False, default=str))
    assert not holds_card(export_for_human(agent).model_dump_json())


@pytest.mark.parametrize("action", ["redact", "encrypt", "refuse"])
def test_part_of_an_address_or_mail_address_is_no_preference(tmp_path: Path, action: Any) -> None:
    actions = dict.fromkeys(["email", "address"], action)
    policy = PiiPolicy(actions=actions, cipher=AesGcmCipher({"k": b"0" * 32}, current="k"))
    with MangaMemory.open(None, f"sqlite:///{tmp_path}/m", memories=True, pii=policy) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent("I'm a fan of ken@example.com. I prefer horror.")
        agent("My favorite author is ken.smith@example.com.")
        agent("Call me ken.smith@example.com")
        agent("I live at 1-2-3 Marunouchi, Chiyoda-ku, Tokyo 100-0001.")
        known = memory.user("u1").recall(type="preference")
        assert [record.content for record in known] == ["genre: horror"]


def test_encrypted_preference_is_readable_in_the_session_that_states_it(tmp_path: Path) -> None:
    cipher = AesGcmCipher({"k": b"0" * 32}, current="k")
    policy = PiiPolicy(actions={"address": "encrypt"}, cipher=cipher)
    with MangaMemory.open(None, f"sqlite:///{tmp_path}/m", memories=True, pii=policy) as memory:
        model = ScriptedModel()
        agent = memory.agent(model, user_id="u1", session_id="s1")
        agent("I live at 742 Evergreen Terrace, Springfield, OR 97477.")
        settle(memory)
        agent("hello")
        assert "- home: 742 Evergreen Terrace" in injected(model, agent)
        assert "home: 742 Evergreen Terrace" in [each.text for each in memory.explain(agent)]


def test_encrypted_metadata_of_a_memory_are_readable(tmp_path: Path) -> None:
    cipher = AesGcmCipher({"k": b"0" * 32}, current="k")
    policy = PiiPolicy(actions={"email": "encrypt"}, cipher=cipher)
    with MangaMemory.open(None, f"sqlite:///{tmp_path}/m", memories=True, pii=policy) as memory:
        user = memory.user("u1")
        metadata = {"contact": {"mail": ["a@example.com"]}, "score": 3}
        stored = user.remember("Has a new address.", metadata=metadata)
        for each in (stored, user.get(stored.memory_id), *user.recall()):
            assert each is not None
            assert each.metadata["contact"] == {"mail": ["a@example.com"]}
        assert b"a@example.com" not in (tmp_path / "m").read_bytes()


def test_summary_has_the_kind_of_encrypted_data_instead_of_ciphertext(tmp_path: Path) -> None:
    cipher = AesGcmCipher({"k": b"0" * 32}, current="k")
    policy = PiiPolicy(actions={"email": "encrypt"}, cipher=cipher)
    with MangaMemory.open(None, f"sqlite:///{tmp_path}/m", memories=True, pii=policy) as memory:
        agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
        agent("Please send the invoice for Monster to ken@example.com.")
        agent("And tell me when volume 3 of Monster arrives.")
        memory.finalize(ConversationScope("u1", "s1"))
        [summary] = memory.user("u1").recall(type="interaction_summary")
        assert "[email]" in summary.content
        assert "pii:" not in summary.content
        assert summary.metadata["topics"] == ["Monster"]


def test_model_cannot_put_a_card_number_into_slots_goals_or_tasks() -> None:
    """Identifiers are refused in slots, and replaced in goals and steps."""

    charge = stub_tool("charge", lambda card: f"charged {card}")

    def use(number: int, name: str, **given: Any) -> dict[str, Any]:
        return tool_use(f"t{number}", name, **given)

    replies: list[Any] = [
        [use(1, "manage_goal", action="set", text="pay with 4539148803436467 for ORD-12345")],
        [use(2, "charge", card="4539148803436467")],
        "done",
    ]
    model = ScriptedModel(replies)
    coordinator = StateCoordinator()
    agent = Agent(model=model, tools=[charge], plugins=[coordinator])
    agent("please pay")
    assert "[card]" in str(coordinator.task.steps)
    assert not holds_card(str(coordinator.task.steps))
    agent("and now?")
    assert "[card]" in json.dumps(agent.state.get())
    assert not holds_card(json.dumps(agent.state.get()))
    assert not holds_card(coordinator.to_agent_context())


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A durable tier with a session of a user, and a umask that lets everybody read new files."""
    before = os.umask(0)
    url = f"sqlite:///{tmp_path / 'm.sqlite3'}"
    with MangaMemory.open(durable=url) as memory:
        memory.agent(ScriptedModel(), user_id="u1", session_id="s1")("my secret wish")
    yield url
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_an_export_file_is_private(url: str, tmp_path: Path, mode: int | None) -> None:
    """``export --out`` writes mode 0600, also over a longer public file."""
    file = tmp_path / "export.json"
    if mode is not None:
        file.write_text("x" * 1_000_000)
        file.chmod(mode)
    assert run(["export", "u1", "--durable", url, "--out", str(file)]) == 0
    assert _mode(file) == 0o600
    assert "my secret wish" in file.read_text()
    assert "xxx" not in file.read_text()


def test_an_export_to_a_pipe_is_written(url: str, tmp_path: Path) -> None:
    """``export --out`` writes to a named pipe, whose mode stays."""
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe, 0o622)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    assert run(["export", "u1", "--durable", url, "--out", str(pipe)]) == 0
    reader.join(10)
    assert "my secret wish" in found[0]
    assert _mode(pipe) == 0o622
