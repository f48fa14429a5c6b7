"""What the model sees now, what survives, and where the task stands."""

from contextlib import suppress
from typing import Any

from strands import tool

from strands_manga_memory import BreakerPolicy, ConversationScope, guard_tool
from strands_manga_memory.state import export_for_human
from tests.probes.conftest import Deployment
from tests.support import estimate_tokens
from tests.unit.session.support import tool_use


def test_a_process_that_knows_nothing_goes_on(deployment: Deployment) -> None:
    """A new process restores the window of a conversation exactly, from its ids."""
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    for number in range(7):
        agent(f"question {number}")
    agent._session_manager.flush()
    again, _ = deployment.agent(deployment.process())
    assert again.messages == agent.messages


def test_two_workers_lose_nothing(deployment: Deployment) -> None:
    """Two workers that use one session at the same time lose no turn, and the messages of their
    turns are not mixed.
    """
    memory = deployment.process()
    one, _ = deployment.agent(memory)
    two, _ = deployment.agent(memory)
    one("from one")
    two("from two")
    one("again one")
    restored, _ = deployment.agent(memory)
    assert {"from one", "from two", "again one"} <= {
        block["text"]
        for message in restored.messages
        for block in message["content"]
        if "text" in block
    }


def test_a_conversation_has_statistics(deployment: Deployment) -> None:
    """A session manager reports whether a conversation exists and how many turns it has, and can
    delete it.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    agent("hello")
    manager: Any = agent._session_manager
    assert manager.exists()
    assert manager.stats()["turns"] == 1
    manager.delete_session()
    assert not manager.exists()


def test_the_history_keeps_to_its_budget(deployment: Deployment) -> None:
    """At every model call, the trimmed window is within its budget, except for pinned messages,
    reasoning, open tool calls and the current message. Its first and last turn stay.
    """
    memory = deployment.process()
    agent, model = deployment.agent(
        memory, reply=lambda _: "An answer of some length. " * 20, max_tokens=1_000
    )
    agent("I want to complete my collection of Berserk.")
    for number in range(30):
        agent(f"question {number} " + "about something else " * 10)
    last = model.requests[-1].messages
    assert estimate_tokens(str(last)) <= 1_600  # with the marks of a message's form
    assert "collection of Berserk" in str(last[0])
    assert "question 29" in str(last[-1])


def test_what_left_the_window_is_found(deployment: Deployment) -> None:
    """With `recall=True`, requests quote evicted messages that share content words with the
    question.
    """
    memory = deployment.process()
    agent, model = deployment.agent(
        memory, recall=True, max_tokens=800, reply=lambda _: "An answer of some length. " * 20
    )
    agent("hello there")
    agent("By the way, the parcel locker has the code GX42.")
    for number in range(25):
        agent(f"question {number} " + "about something else " * 10)
    agent("What was the code of the parcel locker?")
    assert "GX42" in str(model.requests[-1].messages)


def test_a_cart_update_reaches_the_next_model_call(deployment: Deployment) -> None:
    """A published change in another system, such as a cart, is in the next model call and not in
    the stored history.
    """
    cart: list[str] = []
    memory = deployment.process(environment=lambda _: {"cart": list(cart)})
    agent, model = deployment.agent(memory, task_state=True)
    agent("hello")
    cart.append("B07X1234")
    memory.changes(user_id="u1", session_id="s1").publish()
    agent("and now?")
    assert "B07X1234" in str(model.requests[-1].messages)
    assert "B07X1234" not in str(agent.messages)


def test_entities_survive_and_are_told(deployment: Deployment) -> None:
    """Entities are part of requests, across turns and restarts, until the subject changes."""
    memory = deployment.process()
    agent, _ = deployment.agent(memory, task_state=True)
    agent("Where is my order ORD-48502?")
    agent._session_manager.flush()
    again, model = deployment.agent(deployment.process(), task_state=True)
    again("and when?")
    assert "ORD-48502" in str(model.requests[-1].messages[-1])


def test_a_human_takes_over(deployment: Deployment) -> None:
    """One call exports a conversation for a person who takes over, with a reason."""
    memory = deployment.process()
    agent, _ = deployment.agent(memory, task_state=True)
    agent("Where is my order ORD-48502?")
    assert "ORD-48502" in str(export_for_human(agent, reason="asked for"))


def test_a_session_that_broke_in_a_tool_goes_on(deployment: Deployment) -> None:
    """A session whose process ended inside a tool call stays usable."""

    @tool
    def broken() -> str:
        """Break."""
        raise KeyboardInterrupt

    memory = deployment.process()
    use = tool_use("t1", "broken")
    agent, _ = deployment.agent(memory, reply=[[use], "fine"], tools=[broken])
    with suppress(BaseException):  # the process is about to die
        agent("do it")
    agent._session_manager.flush()
    again, _ = deployment.agent(deployment.process(), reply="fine", tools=[broken])
    assert str(again("are you there?")).strip() == "fine"


def test_a_sick_tool_says_so(deployment: Deployment) -> None:
    """A tool whose breaker is open returns a structured error. Other tools still work."""

    @tool
    def sick() -> str:
        """Fail."""
        raise ConnectionError("no server")

    @tool
    def healthy() -> str:
        """Work."""
        return "in stock"

    def use(name: str, number: int) -> list[Any]:
        return [tool_use(f"t{number}", name)]

    memory = deployment.process()
    replies = [*(use("sick", number) for number in range(4)), use("healthy", 9), "done"]
    tools = [guard_tool(sick, BreakerPolicy(failures=2)), guard_tool(healthy)]
    agent, _ = deployment.agent(memory, reply=replies, tools=tools)
    agent("try")
    assert "circuit_open" in str(agent.messages)
    assert "in stock" in str(agent.messages)


def test_the_process_knows_its_latencies(deployment: Deployment) -> None:
    """`memory.stats()` has the latencies of tiers and operations of the process, without I/O."""
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    agent("hello")
    assert memory.stats()


def test_a_disconnect_begins_a_grace(deployment: Deployment) -> None:
    """`memory.disconnected(scope)` restarts the time to live. A user who returns continues the
    conversation.
    """
    memory = deployment.process()
    agent, _ = deployment.agent(memory)
    agent("hello")
    memory.disconnected(ConversationScope("u1", "s1"))
    again, _ = deployment.agent(memory)
    assert len(again.messages) == 2
