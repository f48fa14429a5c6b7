"""Standing instructions: known by their form, in effect until they are taken back."""

from __future__ import annotations

import pytest

from strands_manga_memory.language import RuleFactExtractor, dialogue_act
from strands_manga_memory.language.dialogue_acts import are_instructions_active, revokes_instruction
from strands_manga_memory.language.preferences import collect_preferences
from tests.unit.conversation.messages import assistant, user

INSTRUCTIONS = (
    "Always format all code in fenced blocks.",
    "Never suggest anything with spoilers.",
    "From now on, write prices with tax.",
    "Please keep your replies under 80 words.",
    "Whenever you mention a series, add its publisher.",
    "For the rest of this chat, address me as Captain.",
    "Don't use emojis in your answers.",
    "Could you always tell me the volume number?",
    "Your answers should be in plain text.",
    "If you are not sure about a date, say so.",
    "Every reply must end with a question.",
    "これからは必ず敬語で答えてください。",
    "毎回、税込価格で教えてください。",
    "箇条書きで回答するようにしてください。",
    "今後はネタバレなしでお願いします。",
    "絵文字は使わないでください。",
    "価格を言うときは送料も含めてください。",
    "専門用語は使わないでほしいです。",
    "Kindly stick to two sentences per reply.",
    "From here on, quote prices in dollars only.",
    "I'd like you to spell out the author's full name each time.",
    "Please stop greeting me by name in every message.",
    "Skip the pleasantries when you answer.",
    "You should never recommend anything rated 18+.",
    "返信は二文以内でお願いします。",
    "今後、価格はドルだけで書いてください。",
    "作者名は毎回フルネームで書いてください。",
    "メッセージのたびに名前で呼ぶのはやめてください。",
    "答えるときは前置きを省いてください。",
    "18歳以上向けの作品は絶対に勧めないでください。",
)
NONE = (
    "Find me a hotel with a pool, please.",
    "I always read in the evening.",
    "We have never been to Osaka.",
    "Thanks, and never mind the other question.",
    "Please book a table for four on Friday.",
    "Don't worry about it.",
    "Is there always a queue?",
    "From now on I work on Mondays.",
    "No, I'm heading out of town.",
    "When does the next train leave?",
    "18時以降に届けてください。",
    "寄生獣の在庫を教えてください。",
    "3冊でお願いします。",
    "いつもありがとうございます。",
    "届かない場合はどうすればいいですか?",
    "Stop the presses, volume 9 is out!",
    "My brother always answers in riddles.",
    "Can you answer my question about volume 3?",
    "Please send two copies to Leeds.",
    "Never have I waited so long.",
    "Keep the change.",
    "号外です、9巻が出ました！",
    "兄はいつもなぞなぞで答えます。",
    "3巻についての質問に答えてもらえますか？",
    "リーズに二冊送ってください。",
    "こんなに待ったことはありません。",
    "おつりは結構です。",
)


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_an_instruction_is_known_by_its_form(text: str) -> None:
    assert dialogue_act(text, "user") == "instruction"
    assert dialogue_act(text, "assistant") != "instruction"


@pytest.mark.parametrize("text", NONE)
def test_a_request_a_habit_or_a_courtesy_is_none(text: str) -> None:
    assert dialogue_act(text, "user") != "instruction"


def acts(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(dialogue_act(text, "user"), text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "stands"),
    [
        (("Always answer in bullet points.", "Use metric units from now on.", "Find me a hotel."), [True, True, False]),
        (
            ("Always answer in bullet points.", "Use metric units from now on.", "You can stop using bullet points."),
            [False, True, False],
        ),
        (("Use metric units from now on.", "You don't need to use metric units any more."), [False, False]),
        (("Always answer in bullet points.", "Ignore my earlier instructions."), [False, False]),
        (("You can stop using bullet points.", "Always answer in bullet points."), [False, True]),
        (
            ("これからは敬語で話してください。", "毎回、税込価格で教えてください。", "もう敬語で話さなくていいですよ。"),
            [False, True, False],
        ),
    ],
)
def test_it_stands_until_it_is_taken_back(texts: tuple[str, ...], stands: list[bool]) -> None:
    assert are_instructions_active(acts(texts)) == stands


def test_what_takes_back_nothing_known_takes_back_nothing() -> None:
    assert revokes_instruction("You can stop using bullet points.")
    assert are_instructions_active(acts(("Use metric units from now on.", "You can stop shouting."))) == [True, False]


def test_a_summary_keeps_what_stands_and_drops_what_was_taken_back() -> None:
    extract = RuleFactExtractor().extract
    said = [
        user("Use metric units from now on."),
        assistant("OK."),
        user("毎回、税込価格で教えてください。"),
        assistant("はい。"),
    ]
    assert [slot.kind.value for slot in extract(said)][:2] == ["preference", "preference"]
    texts = [slot.text for slot in extract([*said, user("You don't need to use metric units any more.")])]
    assert not any(text.startswith("Use metric") for text in texts)
    assert any("税込価格" in text for text in texts)


def test_user_memory_keeps_them_as_preferences_of_style_until_they_are_taken_back() -> None:
    told = [
        "Always write prices with tax.",
        "Every reply must end with a question.",
        "You can stop ending replies with a question.",
    ]
    assert collect_preferences(told[:2])["style"] == "Every reply must end with a question, Always write prices with tax"
    assert collect_preferences(told)["style"] == "Always write prices with tax"


@pytest.mark.parametrize(
    ("instructions", "revocation", "active"),
    [
        (
            ("Don't use emojis in your answers.", "Always answer in formal language."),
            "もう敬語でなくていいです。",
            (True, False),
        ),
        (
            ("Don't use emojis in your answers.", "Always answer in formal language."),
            "また絵文字を使ってもいいです。",
            (False, True),
        ),
        (
            ("絵文字は使わないでください。", "箇条書きで回答するようにしてください。"),
            "You don't have to use bullet points any more.",
            (True, False),
        ),
        (("これからは必ず敬語で答えてください。",), "You can stop being polite.", (False,)),
        (("これからは必ず敬語で答えてください。",), "You can stop sending the newsletter.", (True,)),
    ],
)
def test_a_revocation_in_the_other_language_ends_the_instruction_of_its_topic(
    instructions: tuple[str, ...], revocation: str, active: tuple[bool, ...]
) -> None:
    said = [(str(dialogue_act(text, "user")), text) for text in (*instructions, revocation)]
    assert are_instructions_active(said) == [*active, False]
