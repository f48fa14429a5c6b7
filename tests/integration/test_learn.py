"""Preferences and facts are learned by rules, and on request by a model in the background."""

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


STATED = [
    (["My name is Ken by the way."], {"name": "Ken"}),
    (["Hi there, I'm Alex."], {"name": "Alex"}),
    (["はじめまして、田中と申します。"], {"name": "田中"}),
    (["私の名前は佐藤美咲です。"], {"name": "佐藤美咲"}),
    (["I'm allergic to peanuts and shellfish, by the way."], {"allergy": "peanuts, shellfish"}),
    (["I've got a nut allergy, so no snack boxes please."], {"allergy": "nut"}),
    (["ピーナッツアレルギーがあります。"], {"allergy": "ピーナッツ"}),
    (["I live in Osaka with my parents."], {"home": "Osaka"}),
    (["I'm from Leeds but I live in York."], {"hometown": "Leeds", "home": "York"}),
    (["Hey, I'm Fatima, quick question."], {"name": "Fatima"}),
    (["札幌在住です。"], {"home": "札幌"}),
    (["福岡出身で、今は広島に住んでいます。"], {"hometown": "福岡", "home": "広島"}),
]
CHANGED = [
    (["I live in Osaka.", "I moved to Kyoto."], {"home": "Kyoto"}),
    (["大阪に住んでいます。", "先月京都に引っ越しました。"], {"home": "京都"}),
    (["My name is Robert.", "Actually, call me Bob."], {"name": "Bob"}),
    (["Call me Sam.", "Please don't call me Sam any more."], {}),
    (["サムと呼んでください。", "もうサムと呼ばないでください。"], {}),
    (["I'm allergic to cats.", "I'm also allergic to dust."], {"allergy": "dust, cats"}),
    (["I'm allergic to cats.", "It turns out I'm not allergic to cats after all."], {}),
    (["卵アレルギーです。", "検査したら、卵アレルギーではありませんでした。"], {}),
    (["I'm allergic to cats.", "I don't have any allergies."], {}),
    (["I love strawberries.", "I'm not allergic to strawberries."], {"likes": "strawberries"}),
]
NOT_STATED = [
    "My sister is allergic to nuts and lives in Berlin.", "My name badge fell off.",
    "My name was misspelled on the parcel.", "I'm not allergic to anything.",
    "What if I'm allergic to the ink?", "Am I allergic to dust?",
    "If I'm allergic to dust the old books go back.", 'The song "I\'m from Leeds" is on it.',
    "I'm Japanese.", "I'm from the marketing team.", "夫はナッツアレルギーです。",
    "アレルギーは特にありません。", "もし猫アレルギーだったら困ります。",
    "名札の名前が間違っていました。", "彼はトムといって、名古屋に住んでいます。",
    "大阪に住んでいますか？", "作中の探偵は横浜に住んでいます。", "祖母は金沢出身です。",
]  # fmt: skip

OWN = [
    (["My sister likes shojo, but I love horror."], {"genre": "horror"}),
    (["I'm looking for a gift for my dad. Myself, I love mystery."], {"genre": "mystery"}),
    (["My budget is 3000 yen."], {"budget": "3000 yen"}),
    (["妹は少女漫画が好きですが、私はホラーが好きです。"], {"genre": "ホラー"}),
    (["友達に勧められてミステリーが好きになりました。"], {"genre": "ミステリー"}),
]
"""The user's own taste beside that of another person."""

OTHERS = [
    (
        "I also need a gift for my sister. She is 12 and likes shojo, and her budget is 1500 yen.",
        {"sister's likes": "shojo"},
    ),
    ("I'm looking for a birthday present for my dad. My budget for it is 50 dollars.", {}),
    ("For my nephew: sports manga, under 20 dollars please.", {}),
    ("My son is into ninja stories. Paperbacks only, he says.", {"son's likes": "ninja"}),
    (
        "妹へのプレゼントも探しています。12歳で少女漫画が好きです。妹の予算は1500円です。",
        {"妹の好み": "少女漫画"},
    ),
    ("友達はホラーが苦手です。予算は2000円以内だそうです。", {"友達の苦手": "ホラー"}),
    ("Hmm, that is over my budget.", {}),
    ("予算を超えますね。1冊でお願いします。", {}),
]
"""Tastes and budgets of other people and of gifts, and words about a budget that name no amount."""


def _stated(folder: Path, said: list[str]) -> dict[str, str]:
    """Return the preferences stored after a session in which the user said some texts."""
    with MangaMemory.open(durable=f"sqlite:///{folder / 'm.sqlite3'}", memories=True) as memory:
        agent = memory.agent(ScriptedModel(lambda _: "Noted."), user_id="u1", session_id="s1")
        for text in said:
            agent(text)
    with MangaMemory.open(durable=f"sqlite:///{folder / 'm.sqlite3'}", memories=True) as memory:
        memory.finalize(ConversationScope("u1", "s1"))
        records = memory.user("u1").recall(type="preference")
        return {
            str(record.metadata.get("preference_key")): str(record.metadata.get("value"))
            for record in records
        }


@pytest.mark.parametrize(("said", "facts"), [*STATED, *CHANGED, *OWN])
def test_facts_of_the_user_are_stored_and_follow_later_statements(
    tmp_path: Path, said: list[str], facts: dict[str, str]
) -> None:
    """Name, allergy and place have one slot each; nothing else is learned."""
    assert _stated(tmp_path, said) == facts


@pytest.mark.parametrize("text", NOT_STATED)
def test_facts_of_others_and_questions_are_not_stored(tmp_path: Path, text: str) -> None:
    """Other people, questions, suppositions, quotes and negations state no fact about the user."""
    assert not _stated(tmp_path, [text]).keys() & {
        "name", "home", "hometown", "allergy", "language", "dislikes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        *(([text], stored) for text, stored in OTHERS),
        (["I need a gift for my brother.", "Under 30 dollars, please."], {}),
        (["I need a gift for my brother.", "Any mysteries?", "My budget is 30 dollars."], {}),
        (["弟へのプレゼントを探しています。", "3000円以内でお願いします。"], {}),
        (
            ["妹への誕生日プレゼントを探しています。", "ホラーが好きで、予算は3000円です。"],
            {"妹の好み": "ホラー"},
        ),
    ],
)
def test_others_tastes_are_stored_under_their_person_and_budgets_of_gifts_are_not(
    tmp_path: Path, said: list[str], stored: dict[str, str]
) -> None:
    """Of a budget the two messages before it decide whether it is the user's."""
    assert _stated(tmp_path, said) == stored


@pytest.mark.parametrize(
    ("text", "line"),
    [("I'm allergic to peanuts.", "allergy: peanuts"), ("卵アレルギーがあります。", "allergy: 卵")],
)
def test_a_fact_stays_until_it_is_retracted(memory: MangaMemory, text: str, line: str) -> None:
    """``explain`` names the fact's session, and ``retract`` removes it for good."""

    def prompt(session: str) -> str:
        model = ScriptedModel()
        agent = memory.agent(model, user_id="u1", session_id=session)
        agent("Anything new?")
        sources = [source for source in memory.explain(agent) if source.text == line]
        assert [source.session_id for source in sources] == ["s1"] * len(sources)
        found = str(model.requests[-1].system_prompt_content)
        for source in sources:
            memory.retract(source)
        assert bool(sources) == (line in found)
        return found

    agent = memory.agent(ScriptedModel(), user_id="u1", session_id="s1")
    agent(text)
    memory.finalize(ConversationScope("u1", "s1"))
    assert line in prompt("s2")
    memory.finalize(ConversationScope("u1", "s1"))
    assert line not in prompt("s3")
