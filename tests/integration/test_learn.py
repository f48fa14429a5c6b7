"""Preferences are learned by rules, and on request by a model in the background."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel
from tests.servers import wait_until
from tests.support import background_writer, settle

SAID = "Well, since the move the shelves go by the colour of the spines."


def preferences(*stated: tuple[int, str, str]) -> str:
    return json.dumps(
        {"preferences": [{"line": line, "key": key, "value": value} for line, key, value in stated]}
    )


class Thinking(ScriptedModel):
    """A model that does not answer before it may."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(replies)
        self.may, self.asked, self.prompts = threading.Event(), threading.Event(), []
        self.may.set()

    async def structured_output(
        self, output_model: Any, prompt: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self.prompts.append(prompt[0]["content"][0]["text"])
        self.asked.set()
        assert self.may.wait(20)
        async for event in super().structured_output(output_model, prompt, *args, **kwargs):
            yield event


def open_memory(folder: Path) -> MangaMemory:
    return MangaMemory.open("memory://", f"sqlite:///{folder}/m.db", memories=True)


def known(memory: MangaMemory) -> set[str]:
    settle(memory)
    return {record.content for record in memory.user("u").recall(type="preference", limit=None)}


def agent_of(memory: MangaMemory, model: ScriptedModel, **options: Any) -> Agent:
    return memory.agent(ScriptedModel(), user_id="u", session_id="s", aux_model=model, **options)


def test_an_answer_is_read_with_its_question_also_after_a_restart(tmp_path: Path) -> None:
    """The statement belongs to the message of the answer, and is retracted with it."""

    def answering(memory: MangaMemory, reply: str) -> Agent:
        return memory.agent(ScriptedModel(lambda _: reply), user_id="u", session_id="s")

    with open_memory(tmp_path) as memory:
        agent = answering(memory, "What's your name?")
        agent("Hi there.")
        agent("kenji")
        assert known(memory) == {"name: kenji"}
    with open_memory(tmp_path) as memory:
        agent = answering(memory, "Which genres do you like?")
        agent("ken")
        agent("mostly fantasy")
        assert known(memory) == {"name: ken", "genre: fantasy"}
        agent.messages[4]["content"] = [{"text": "maria"}]
        agent("Thanks.")
        assert known(memory) == {"name: maria", "genre: fantasy"}
        agent.messages[6]["content"] = [{"text": "surprise me"}]
        agent("Thanks.")
        assert known(memory) == {"name: maria"}
        memory.rewind(ConversationScope("u", "s"), 2)
        assert known(memory) == {"name: kenji"}


def test_a_model_finds_what_the_rules_do_not(tmp_path: Path) -> None:
    model = Thinking(
        [preferences((1, "preferred format", "spines"), (1, "shelves", "the colour of the spines"))]
    )
    with open_memory(tmp_path) as memory:
        agent_of(memory, model, learn="model")(SAID)
        assert known(memory) == {"format: spines", "shelves: the colour of the spines"}
    with open_memory(tmp_path) as memory:
        agent_of(memory, model, learn="rules")("I was on the ferry again.")
        assert len(model.prompts) == 1


def test_an_aux_model_is_asked_by_default_and_the_agents_own_model_is_not(tmp_path: Path) -> None:
    """A user who gives no ``aux_model`` pays for no second call; ``None`` given as one is none."""
    model = Thinking([preferences((1, "format", "spines"))])
    own = Thinking(["ok"] * 3)
    with open_memory(tmp_path) as memory:
        agent_of(memory, model)(SAID)
        assert known(memory) == {"format: spines"}
        memory.agent(own, user_id="v", session_id="s")(SAID)
        memory.agent(own, user_id="v", session_id="t", aux_model=None)(SAID)
        agent_of(memory, model, learn="rules")("I was on the ferry again.")
        settle(memory)
        assert len(model.prompts) == 1
        assert own.prompts == []


def test_the_answer_does_not_wait_for_it(tmp_path: Path) -> None:
    model = Thinking([preferences((1, "format", "spines")), preferences((2, "format", "ferry"))])
    model.may.clear()
    with open_memory(tmp_path) as memory:
        agent = agent_of(memory, model, learn="model")
        assert str(agent(SAID)).strip() == "ok"
        assert model.asked.wait(20)
        agent("Then we had tea.")
        agent("And I took the ferry home. My favorite genre is horror.")
        # When the table has the genre, both messages wait to be in the next question.
        user = memory.user("u")
        wait_until(lambda: user.recall(type="preference", limit=None), "storing the genre")
        model.may.set()
        settle(memory)
        assert [prompt.count("\n") - 1 for prompt in model.prompts] == [1, 2]
        assert known(memory) == {"format: ferry", "genre: horror"}


def test_what_was_not_said_is_not_learned(tmp_path: Path) -> None:
    invented = preferences((1, "genre", "horror"), (9, "format", "spines"), (0, "format", "ferry"))
    with open_memory(tmp_path) as memory:
        agent_of(memory, Thinking([invented]), learn="model")(SAID)
        assert known(memory) == set()


@pytest.mark.parametrize("reply", ["no json", RuntimeError("down")])
def test_failed_model_leaves_the_rules(
    tmp_path: Path, reply: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_memory(tmp_path) as memory,
        caplog.at_level(logging.DEBUG, "strands_manga_memory.memory.plugin"),
    ):
        agent_of(memory, Thinking([reply]), learn="model")("My favourite genre is horror.")
        assert known(memory) == {"genre: horror"}
    assert "the model failed to extract preferences" in caplog.text
    assert "horror" not in caplog.text


def test_missing_structured_output_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Without(ScriptedModel):
        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    with open_memory(tmp_path) as memory, caplog.at_level(logging.INFO):
        for session in "abc":  # an agent and a model for each request
            agent = memory.agent(Without(), user_id="u", session_id=session, learn="model")
            for number in range(3):
                agent(f"{SAID} {number}")
                settle(memory)
    assert caplog.text.count("the model failed to extract preferences") == 1


def test_a_message_that_is_taken_back_while_the_model_thinks_leaves_nothing(tmp_path: Path) -> None:
    model = Thinking([preferences((1, "format", "spines"))])
    model.may.clear()
    with open_memory(tmp_path) as memory:
        agent = agent_of(memory, model, learn="model")
        agent(SAID)
        assert model.asked.wait(20)
        agent.messages[0]["content"] = [{"text": "[redacted]"}]
        agent("Thanks.")
        background_writer(memory.hot, None).submit("other", lambda: None).result(20)
        model.may.set()
        assert known(memory) == set()


def test_nothing_is_learned_where_that_is_asked_for(tmp_path: Path) -> None:
    with open_memory(tmp_path) as memory:
        agent = agent_of(memory, Thinking([]), learn="nothing")
        agent("My favourite genre is horror.")
        assert known(memory) == set()
        assert memory.finalize(ConversationScope("u", "s")) is not None
        assert known(memory) == set()


def test_it_needs_memories_and_a_name_that_is_known(tmp_path: Path) -> None:
    with (
        MangaMemory.open(durable=f"sqlite:///{tmp_path}/m.db") as memory,
        pytest.raises(ValueError, match="memories is None"),
    ):
        memory.agent_kwargs(user_id="u", session_id="s", learn="model")
    with (
        open_memory(tmp_path) as memory,
        pytest.raises(ValueError, match="'rules', 'model', 'nothing' or None, got 'models'"),
    ):
        memory.agent_kwargs(user_id="u", session_id="s", learn="models")


def test_a_next_session_knows_it(tmp_path: Path) -> None:
    model = Thinking([preferences((1, "format", "spines"))])
    with open_memory(tmp_path) as memory:
        agent_of(memory, model, learn="model")(SAID)
        settle(memory)
        memory.finalize(ConversationScope("u", "s"))
    with open_memory(tmp_path) as memory:
        answers = ScriptedModel()
        memory.agent(answers, user_id="u", session_id="next")("hello")
        assert "spines" in str(answers.requests[0].system_prompt_content)


def test_a_model_keeps_nothing_that_ends_at_a_stated_time(tmp_path: Path) -> None:
    model = Thinking([preferences((1, "style", "the shelves go by colour"), (1, "name", "Ken"))])
    with open_memory(tmp_path) as memory:
        agent_of(memory, model)("Until Friday, the shelves go by colour. Folks call me Ken.")
        assert known(memory) == {"name: Ken"}
