import threading
from typing import Any

from strands import Agent

from strands_manga_memory import StoreUnavailableError
from strands_manga_memory.testing import ScriptedModel
from tests.faulty_stores import FaultyTable
from tests.unit.session.support import MemoryTable, texts


def agent(model: ScriptedModel, **named: Any) -> Agent:
    return Agent(model=model, retry_strategy=None, **named)


# ScriptedModel


def test_requests_are_remembered_as_they_were() -> None:
    model = ScriptedModel()
    live = agent(model, system_prompt="be kind")
    live("hi")
    live.messages[0]["content"][0]["text"] = "changed"
    request = model.requests[0]
    assert texts(request.messages) == ["hi"]
    assert request.system_prompt == "be kind"


def test_usage_is_reported() -> None:
    live = agent(ScriptedModel(usage=lambda messages: 123))
    usage = live("hi").metrics.accumulated_usage
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (123, 8, 131)
    assert live.messages[1]["metadata"]["usage"]["inputTokens"] == 123


def test_usage_is_of_the_content_alone() -> None:
    live = agent(ScriptedModel(["fine " * 8]))
    live("word " * 40)
    assert live("word " * 4).metrics.latest_agent_invocation.usage["inputTokens"] == 50 + 10 + 5


# Faulty stores


def test_failures_are_given_out_once_each_whatever_thread_asks() -> None:
    table = FaultyTable(MemoryTable())
    table.fail_next(20)
    failed: list[int] = []

    def ask() -> None:
        for _ in range(20):
            try:
                table.get("p", "s")
            except StoreUnavailableError:
                failed.append(1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 20
