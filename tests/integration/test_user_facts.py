"""Facts of users are memories: shown, replaced, explained, retractable."""

from pathlib import Path

import pytest

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import ScriptedModel

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
