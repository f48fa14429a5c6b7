"""The conversation tier, its time to live, its budget, summaries and compaction."""

from typing import Any

import pytest
from strands import Agent, tool
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory import (
    ConversationScope,
    ImportanceWeightedConversationManager,
    TtlPolicy,
    VerifiedSummarizingConversationManager,
)
from strands_manga_memory.conversation import SummaryTrigger, budget_plan, thresholds
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.probes.conftest import Deployment
from tests.support import SmallModel, estimate_tokens, state_of
from tests.unit.session.support import tool_use

SCOPE = ConversationScope("u1", "s1")


def hot_seconds(deployment: Deployment) -> float:
    """Return how long the conversation still lives in the hot tier, by looking."""
    found = deployment.processes[0].hot.load(
        f"{SCOPE.storage_session_id}/A:default", [], touch=False
    )
    return 0.0 if found is None else found.expires_in


def test_metadata_stand_beside_the_conversation(deployment: Deployment) -> None:
    """With task state, each conversation has metadata: user, locale, intent, agent, cart and
    counts. Each turn has its intent.
    """
    cart = ["B07X1234"]
    memory = deployment.process(environment=lambda _: {"locale": "ja-JP", "cart": list(cart)})
    agent, _ = deployment.agent(memory, task_state=True)
    manager: Any = agent._session_manager
    agent("hello")
    state = state_of(agent)
    state.dialogue.set_intent("order_tracking", agent="sales")
    cart.append("B07X9999")
    memory.changes(user_id="u1", session_id="s1").publish()
    agent("and again")
    state.dialogue.set_intent("returns", agent="service")  # after the last turn
    manager.set_metadata(shown_to="u1")
    manager.close()
    found = deployment.process().session(SCOPE).metadata("default")
    assert (found["locale"], found["cart"], found["turn_count"]) == (
        "ja-JP",
        ["B07X1234", "B07X9999"],
        2,
    )
    assert (found["active_intent"], found["active_agent"], found["shown_to"]) == (
        "returns",
        "service",
        "u1",
    )
    assert found["user"] == "u1"
    records = list(deployment.process().session(SCOPE).records("default"))
    assert records[-1]["message"]["metadata"]["custom"]["intent"] == "order_tracking"
    assert found["created"] <= found["last_activity"]
    stats = manager.stats("default")
    assert stats["budget"] - stats["tokens"] == stats["left"] > 0
    assert stats["oldest_turn_age"] >= 0


@pytest.mark.parametrize(
    ("policy", "turns", "seconds"),
    [
        (TtlPolicy(seconds=600), 1, 600),
        (TtlPolicy(mode="sliding"), 1, 1_800),
        (TtlPolicy(tier="standard"), 1, 1_800),
        (TtlPolicy(tier="standard"), 10, 2_700),
        (TtlPolicy(tier="premium"), 8, 3_600),
        (TtlPolicy(tier="vip"), 1, 3_600),
        (TtlPolicy(tier="vip"), 5, 7_200),
        (TtlPolicy(tier="of nobody"), 1, 1_800),
    ],
)
def test_a_conversation_lives_by_its_policy(
    deployment: Deployment, policy: TtlPolicy, turns: int, seconds: float
) -> None:
    """The time to live in the hot tier follows its policy: fixed, sliding, or by the user's tier
    and the number of turns.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory, ttl=policy)
    for number in range(turns):
        agent(f"question {number}")
    assert policy.ttl(turns) == seconds
    if memory.hot.survives_process:  # else the durable tier alone has the conversation
        servers.wait_until(
            lambda: seconds - 60 < hot_seconds(deployment) <= seconds, f"{seconds} s"
        )


def test_what_weighs_most_stays_longest(deployment: Deployment) -> None:
    """A window over its budget evicts recognized small talk first and recognized preferences last,
    in English and Japanese.
    """
    memory = deployment.process()
    agent, model = deployment.agent(
        memory, max_tokens=900, reply=lambda _: "Understood, I will keep that in mind for you. " * 4
    )
    agent("Help me to complete my shelf.")
    agent("I am allergic to nuts, never suggest snacks with them.")
    agent("ホラーは苦手なので絶対に避けてください。")
    for number in range(25):
        agent(
            "Thank you, that is nice of you!"
            if number % 2
            else "ありがとうございます、よろしくお願いします。"
        )
    sent = str(model.requests[-1].messages)
    assert "allergic to nuts" in sent
    assert "ホラーは苦手" in sent
    assert sent.count("Thank you, that is nice") + sent.count("ありがとうございます") < 20
    assert "complete my shelf" in str(model.requests[-1].messages[0])


def test_a_history_can_be_capped_in_turns(deployment: Deployment) -> None:
    """A window can be limited to a number of turns, the first and the last included. Pinned
    messages may exceed the limit.
    """
    agent, model = deployment.agent(deployment.process(), max_turns=5)
    for number in range(20):
        agent(f"Question number {number}.")
    sent = model.requests[-1].messages
    assert sum(map(is_turn_start, sent)) <= 5
    assert "number 0." in str(sent[0])
    assert "number 19." in str(sent[-1])


def test_a_request_is_planned_part_by_part() -> None:
    """A budget plan adds up the parts of a request and reports the tokens left in the context
    window.
    """
    plan = budget_plan(history=4_096)
    assert plan.total == 800 + 500 + 4_096 + 200 + 1_000 + 1_024
    assert not plan.fits(4_096)
    assert plan.left(8_000) == 8_000 - plan.total
    with pytest.raises(ValueError, match="history"):
        budget_plan(history=-1)


def test_a_summary_comes_after_twenty_turns_or_eight_thousand_tokens(
    deployment: Deployment,
) -> None:
    """From 20 turns on, a summary replaces all but the last three turns. It is written after the
    response, and a restart restores it.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(
        memory,
        history="summarize",
        max_tokens=2_000,
        reply=lambda _: "Volume 3 of Uzumaki is 12 dollars.",
    )
    for number in range(24):
        agent(f"My order number {number} is ORD-{48500 + number}, please note it for later.")
        agent.conversation_manager.finish(agent)
    assert len(agent.messages) < 48
    said = [str(message["content"]) for message in agent.messages if message["role"] == "user"]
    assert all(any(f"ORD-{48500 + number}" in text for text in said) for number in (21, 22, 23))
    assert "ORD-48501" in str(agent.messages)  # told by the summary, or as a plain fact behind it
    agent._session_manager.flush()
    again, _ = deployment.agent(deployment.process(), history="summarize", max_tokens=2_000)
    assert again.messages == agent.messages


def test_what_a_summary_lacks_is_appended() -> None:
    """If a summary lacks a recognized fact, the model is asked for this fact. If it is still
    missing, it is added word for word.
    """
    asked: list[Any] = []

    def summarizer(prompt: Any) -> str:
        asked.append(prompt)
        return "The user asked about several series, and the assistant answered."

    manager = VerifiedSummarizingConversationManager(SummaryTrigger(turns=4), model=summarizer)
    agent = Agent(model=ScriptedModel(lambda _: "Noted."), conversation_manager=manager)
    for text in (
        "My budget is 3,000 yen.",
        "The order is ORD-48502.",
        "I decided on the box set.",
        *(f"And {n}?" for n in range(5)),
    ):
        agent(text)
        manager.finish(agent)
    assert len(asked) >= 2  # asked again
    assert "ORD-48502" in str(agent.messages)
    assert "3,000" in str(agent.messages)


WINDOWS = [
    (8_000, 5_360),
    (32_000, 21_440),
    (128_000, 95_000),
    (200_000, 160_000),
    (1_000_000, 800_000),
    (None, 95_000),
]


@pytest.mark.parametrize(("window", "trigger"), WINDOWS)
def test_compaction_begins_by_the_window(window: int | None, trigger: int) -> None:
    """Compaction begins when the context window is 80 % full, or earlier if 33,000 tokens (in
    windows under 100,000: 33 %) would not stay free.
    """
    found = thresholds(window)
    assert found.trigger == trigger
    assert found.window == (window or 128_000)
    assert 0 < found.target < found.trigger <= found.hard <= found.window


def test_one_huge_result_bricks_no_session(deployment: Deployment) -> None:
    """A huge tool result is truncated for the model and stored in full. The session stays usable,
    also after a restart.
    """

    @tool
    def catalogue() -> str:
        """Return everything."""
        return "HEAD " + "volume and price " * 60_000 + " TAIL"

    memory = deployment.process()
    use: Any = tool_use("t1", "catalogue")
    model = ScriptedModel([[use], "There is much.", "Still here."])
    model.config["context_window_limit"] = 16_000
    kwargs = memory.agent_kwargs(user_id="u1", session_id="s1", history="compact")
    agent = Agent(model=model, tools=[catalogue], **kwargs)
    agent("What is there?")
    assert estimate_tokens(str(model.requests[1].messages)) < 16_000
    assert "HEAD" in str(model.requests[1].messages)
    assert "TAIL" in str(model.requests[1].messages)
    assert len(str(list(memory.session(SCOPE).history("default")))) > 900_000
    assert str(agent("and now?")).strip() == "Still here."


def test_a_real_overflow_is_answered() -> None:
    """After an overflow error of the model, the window is halved, or made a quarter smaller, and
    the call is repeated. If that cannot help, the error is raised.
    """

    agent = Agent(
        model=SmallModel(4_000), conversation_manager=ImportanceWeightedConversationManager(100_000)
    )
    for number in range(60):
        agent(f"question {number} " + "word " * 30)
    assert str(agent.messages[-1]["content"]).count("ok") == 1
    pinned = Agent(
        model=SmallModel(4_000),
        messages=[
            {
                "role": "user",
                "content": [{"text": "x" * 5_000}],
                "metadata": {"custom": {"pinned": True}},
            }
        ],
        conversation_manager=ImportanceWeightedConversationManager(),
    )
    with pytest.raises(ContextWindowOverflowException):
        pinned("hello")


def test_at_turn_fifty_the_context_is_small(deployment: Deployment) -> None:
    """In a test of fifty turns with 30,000 tokens, the summarized window has at most 5,000 tokens
    and still contains a decision of the first turn.
    """
    memory = deployment.process()
    agent, model = deployment.agent(
        memory, history="summarize", reply=lambda _: "Here is what I know of it. " * 80
    )
    agent("I decided on the hardcover edition, order ORD-48502.")
    for number in range(49):
        agent(f"question {number}: " + "tell me about another series " * 8)
        agent.conversation_manager.finish(agent)
    agent.conversation_manager.begin(agent)
    agent.conversation_manager.finish(agent)
    agent("question 49: is that all?")
    sent = [
        block["text"]
        for message in model.requests[-1].messages
        for block in message["content"]
        if "text" in block
    ]
    assert estimate_tokens("".join(sent)) <= 5_000
    assert "ORD-48502" in str(model.requests[-1].messages)


def test_a_pin_survives_a_restore(deployment: Deployment) -> None:
    """After a trim or a compaction, too, a restart restores the window exactly, with its pins."""
    memory = deployment.process()
    agent, _ = deployment.agent(
        memory, max_tokens=700, reply=lambda _: "An answer of some length. " * 10
    )
    agent("Remember: the gift is a surprise.")
    agent.messages[0]["metadata"] = {"custom": {"pinned": True}}
    for number in range(20):
        agent(f"question {number} " + "about something else " * 8)
    assert "surprise" in str(agent.messages)
    agent._session_manager.flush()
    again, _ = deployment.agent(deployment.process(), max_tokens=700)
    assert again.messages == agent.messages


def test_summaries_are_made_from_what_was_said() -> None:
    """Each summary is made from the original turns. The model also reads earlier summaries, but
    does not summarize them again.
    """
    prompts: list[str] = []

    def summarizer(prompt: Any) -> str:
        prompts.append(str(prompt))
        return "The user asked about several series, and the assistant answered."

    manager = VerifiedSummarizingConversationManager(SummaryTrigger(turns=5), model=summarizer)
    agent = Agent(model=ScriptedModel(lambda _: "It is there."), conversation_manager=manager)
    for number in range(30):
        agent(f"Is volume {number} of Series{number}x there?")
        manager.finish(agent)
    assert len(prompts) >= 3
    covered = [{number for number in range(30) if f"Series{number}x" in p} for p in prompts]
    assert set().union(*covered) >= set(range(20))  # every turn that left was read as it was said
    assert all(covered)


def test_a_buffer_warns_before_it_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """A warning is logged when the window has three quarters of the tokens at which a summary
    begins. At that number, a short summary begins; when it is written, it replaces the older turns.
    """
    manager = VerifiedSummarizingConversationManager(
        SummaryTrigger(tokens=4_000, turns=1_000),
        model=lambda _: "The user asked about several series.",
    )
    agent = Agent(model=ScriptedModel(lambda _: "word " * 100), conversation_manager=manager)
    sizes = []
    while "summarized soon" not in caplog.text:
        agent(f"question {len(sizes)} " + "word " * 100)
        manager.finish(agent)
        sizes.append(manager.usage(agent)["tokens"])
    assert sizes[-2] < 3_000 <= sizes[-1] < 3_300
    told = sum(estimate_tokens(message["content"][0]["text"]) for message in agent.messages)
    assert 0.8 * sizes[-1] <= told <= sizes[-1]  # each message has some tokens besides its text
    for number in range(20):
        agent(f"question {number} " + "word " * 100)
        manager.finish(agent)
    assert sum(estimate_tokens(str(message["content"])) for message in agent.messages) <= 4_800
