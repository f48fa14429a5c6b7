"""What users prefer is heard slot by slot, with its polarity; a change of mind leaves one answer."""

from __future__ import annotations

import pytest

from strands_manga_memory.language.preferences import (
    MOST_PREFERENCES,
    apply_preference,
    collect_preferences,
    extract_preferences,
    slot_for_key,
)
from strands_manga_memory.memory import Preference
from tests.lines import rows


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_tastes_are_heard_with_their_slot_and_polarity(script: str) -> None:
    lines = [line for line in rows("preferences") if line[0].isascii() == (script == "English")]
    missed = [
        line
        for line in lines
        if line[1:] not in [[each.slot, each.value, each.liked] for each in extract_preferences([line[0]])]
    ]
    others = [line for line in rows("no_preferences") if line.isascii() == (script == "English")]
    wrong = {line: heard for line in others if (heard := extract_preferences([line]))}
    found = len(lines) - len(missed)
    assert found / len(lines) >= 0.9, missed
    assert found / (found + len(wrong)) >= 0.97, wrong


def _is_heard(line: str, named: str, liked: bool | None) -> bool:
    """Tell whether what a line names is heard, with its side: "not wanted" is in a slot of its own, or in the statement."""
    for each in extract_preferences([line]):
        found = f"{each.slot} {each.value}".lower()
        kin = (named.replace("traged", "tragedy"), named.rstrip("s"))
        if any(name in found for name in (named, *kin)) and (
            liked is None or not each.slot or (each.liked is not False) == liked
        ):
            return True
    return False


@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_nine_of_ten_natural_sentences_are_heard_and_shop_talk_is_not(script: str) -> None:
    lines = [line for line in rows("tastes") if line[0].isascii() == (script == "English")]
    missed = [line[0] for line in lines if not _is_heard(*line)]
    others = [line for line in rows("no_tastes") if line.isascii() == (script == "English")]
    wrong = {line: heard for line in others if (heard := extract_preferences([line]))}
    assert len(lines) >= 90
    assert len(missed) <= 0.1 * len(lines), missed
    assert len(wrong) <= len(others) / 25, wrong


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("I avoid games with graphic violence.", ("genre", "violence", False)),
        ("I prefer books with large letters.", ("likes", "books with large letters", True)),
        ("医療ものは血が出るので苦手です。", ("genre", "医療", False)),
        ("I need English editions.", ("language", "english", True)),
        ("歴史ものに興味があります。", ("genre", "歴史", True)),
    ],
)
def test_a_taste_is_told_with_all_that_narrows_it(said: str, heard: tuple[str, str, bool]) -> None:
    assert [(each.slot, each.value, each.liked) for each in extract_preferences([said])] == [heard]


@pytest.mark.parametrize(
    "said",
    [
        "I'm able to be comfortable at a table.",
        "please transfer me",
        "The horror section is great.",
        "My paperback arrived torn.",
        "I want a horror manga for my brother.",
        "I don't need travel insurance.",
        "No thanks so much.",
        "電子版が見つかりません。",
        "ファンタジーは売れていますか。",
    ],
)
def test_words_that_only_hold_the_name_of_a_genre_or_serve_the_moment_are_no_taste(said: str) -> None:
    assert extract_preferences([said]) == []


@pytest.mark.parametrize(
    ("said", "comes_to"),
    [
        (
            ["I love horror manga.", "I don't like horror any more, I prefer romance."],
            {"dislikes": "horror", "genre": "romance"},
        ),
        (["I love horror.", "I also like romance."], {"genre": "romance, horror"}),
        (["I hate horror.", "I love horror."], {"genre": "horror"}),
        (["My favorite genre is horror.", "My favorite genre is romance."], {"genre": "romance"}),
        (["I love One Piece.", "I don't like One Piece any more."], {"dislikes": "One Piece"}),
        (["I love horror.", "I used to love horror."], {}),
        (["I prefer digital editions.", "I'd rather have paperbacks now."], {"format": "paperbacks"}),
        (["ホラーが好きです。", "もうホラーは好きじゃないです。恋愛の方がいいです。"], {"dislikes": "ホラー", "genre": "恋愛"}),
        (["I love horror.", "ホラーは苦手になりました。"], {"dislikes": "ホラー"}),
        (["Please answer in Japanese.", "Please answer in English."], {"language": "English"}),
        (["My budget is 30 dollars.", "Make my budget 50 dollars instead."], {"budget": "50 dollars"}),
        (["My budget is 3000 yen.", "Please raise my budget to 5000 yen."], {"budget": "5000 yen"}),
        (["予算は3000円です。", "予算は5000円に変更します"], {"budget": "5000円"}),
        (["予算は3000円です。", "予算を4000円に上げてください。"], {"budget": "4000円"}),
        (["浦沢直樹の作品が好きです。", "浦沢直樹はもう読みません"], {"dislikes": "浦沢直樹"}),
        (["浅野いにおの漫画が好きです。", "浅野いにおはもう読みたくないです。"], {"dislikes": "浅野いにお"}),
        (["I love everything by Junji Ito.", "I don't read Junji Ito any more."], {"dislikes": "Junji Ito"}),
        (["keep answers short", "You can give me long, detailed answers again."], {}),
        (["Keep your answers brief.", "You may give longer answers again."], {}),
        (["短く答えてください。", "また詳しく答えていいです。"], {"style": "詳しく"}),
        (["I live in Osaka.", "I moved to Kyoto."], {"home": "Kyoto"}),
        (["I live in Osaka.", "We recently relocated from Osaka to Nagoya."], {"home": "Nagoya"}),
        (["大阪に住んでいます。", "先月名古屋へ引っ越した。"], {"home": "名古屋"}),
        (["I moved to digital."], {"format": "digital"}),
        (["I love horror.", "Forget what I said about horror."], {}),
        (["I hate gore.", "Forget that I hate gore."], {}),
        (["I love horror.", "Don't forget that I love horror."], {"genre": "horror"}),
        (["ホラーが好きです。", "ホラーのことは忘れてください。"], {}),
        (["I love horror. I love romance."], {"genre": "romance, horror"}),
        (["ホラーが好きです。恋愛が好きです。"], {"genre": "恋愛, ホラー"}),
        (["I love horror. Actually I prefer romance now."], {"genre": "romance"}),
    ],
)
def test_a_change_of_mind_leaves_what_was_said_last(said: list[str], comes_to: dict[str, str]) -> None:
    assert collect_preferences(said) == comes_to


@pytest.mark.parametrize(
    ("said", "comes_to"),
    [
        ("I'm over isekai, give me mystery.", {"dislikes": "isekai", "genre": "mystery"}),
        ("I'm done with fantasy, show me thrillers.", {"dislikes": "fantasy", "genre": "thrillers"}),
        ("No more romance, mystery please!", {"dislikes": "romance", "genre": "mystery"}),
        ("No horror, comedy instead.", {"dislikes": "horror", "genre": "comedy"}),
        ("No horror, gore or zombies please.", {"dislikes": "zombies, gore, horror"}),
        ("No horror, gore, violence please.", {"dislikes": "violence, gore, horror"}),
        ("I hated horror, but mystery grew on me.", {"dislikes": "horror", "genre": "mystery"}),
        ("I disliked sports manga but seinen won me over.", {"dislikes": "sports", "genre": "seinen"}),
        ("異世界はもう飽きたので、ミステリーをください。", {"dislikes": "異世界", "genre": "ミステリー"}),
        ("恋愛はもういいので、推理ものをお願いします。", {"dislikes": "恋愛", "genre": "推理"}),
        ("I'm not into romance, except for rom-coms.", {"dislikes": "romance", "genre": "rom-coms"}),
        ("I hate isekai apart from comedies.", {"dislikes": "isekai", "genre": "comedies"}),
        ("I love everything except horror.", {"dislikes": "horror"}),
        ("Anything but isekai for me, please.", {"dislikes": "isekai"}),
        ("The delivery was anything but fast.", {}),
        ("I never buy digital, only paperbacks.", {"dislikes": "digital", "format": "paperbacks"}),
        ("ミステリー以外は読みません。", {"genre": "ミステリー"}),
        ("ホラー以外なら何でも好きです。", {"dislikes": "ホラー"}),
        ("I never spend more than 20 euros on a book.", {"budget": "20 euros"}),
        ("I won't go over 25 pounds.", {"budget": "25 pounds"}),
    ],
)
def test_each_side_of_a_sentence_has_its_own_polarity(said: str, comes_to: dict[str, str]) -> None:
    assert collect_preferences([said]) == comes_to


@pytest.mark.parametrize(
    "said",
    [
        "I don't hate horror.",
        "I don't dislike romance.",
        "I wouldn't say I hate comedy.",
        "I don't mind sci-fi.",
        "I'm not against mecha.",
        "ホラーは嫌いじゃないです。",
        "ミステリーは苦手ではありません。",
        "恋愛ものが嫌いというわけではないです。",
    ],
)
def test_who_does_not_dislike_a_thing_takes_no_side(said: str) -> None:
    assert all(each.slot == "" for each in extract_preferences([said]))


@pytest.mark.parametrize(
    "said",
    [
        "I never said I like horror.",
        "We didn't tell you we hate romance.",
        "ホラーが好きとは言っていません。",
        "恋愛が好きだと言った覚えはありません。",
        "I prefer to pay by card.",
        "I like to pick up my books at the store.",
        "支払いはカードのほうがいいです。",
        "店頭で受け取るほうが好きです。",
        "Is there horror? I need it by Friday.",
        "Do you have the horror box? I like it.",
    ],
)
def test_what_was_not_said_or_is_the_shops_is_no_taste(said: str) -> None:
    assert extract_preferences([said]) == []


@pytest.mark.parametrize(
    "said",
    [
        "Got any good josei? I adore that stuff.",
        "Do you carry seinen? I can't get enough of it.",
        "What about harem? I can't stand that kind of thing.",
        "ホラーはありますか？大好きなんです。",
        "百合は置いていますか？ちょっと苦手です。",
    ],
)
def test_a_statement_that_only_points_at_something_is_no_preference(said: str) -> None:
    assert extract_preferences([said]) == []


@pytest.mark.parametrize(
    ("slot", "keys"),
    [
        ("genre", "genre,Genres,favorite genres,favourite_genre,favorite genre,ジャンル,好きなジャンル,一番好きなジャンル"),
        ("author", "author,favorite writer,preferred mangaka,artist,favorite artists,好きな作家,お気に入りの漫画家"),
        ("language", "language,preferred language,language_preference,言語"),
        ("budget", "budget,monthly budget,max_budget,my budget,予算,毎月の予算,limit"),
        ("style", "style,tone,preferred tone,answer style,口調,返事の口調"),
        ("name", "name,nickname,my name,名前,ニックネーム,私の名前"),
        ("dislikes", "dislikes,disliked genre,least favorite genres,嫌いなジャンル,苦手な作家"),
        ("favorite 色", "好きな色,favorite 色"),
        ("favorite color", "favorite color,favourite_color"),
        ("travel budget", "travel budget"),
        ("favorite name", "favorite name"),
        ("favorite city", "favorite city"),
    ],
)
def test_profile_and_talk_name_a_slot_alike(slot: str, keys: str) -> None:
    assert {key: found for key in keys.split(",") if (found := slot_for_key(key)) != slot} == {}


def test_a_message_that_says_very_much_is_heard_in_part() -> None:
    flood = " ".join(f"I love thing{number}." for number in range(400))
    assert len(extract_preferences([flood])) == MOST_PREFERENCES


def test_what_is_not_wanted_leaves_whatever_slot_it_is_in() -> None:
    slots = {"genre": "horror, romance", "likes": "Uzumaki", "budget": "3,000 yen"}
    assert apply_preference(slots, Preference("likes", "horror", liked=False)) == {"genre": "romance", "dislikes": "horror"}


@pytest.mark.parametrize(
    "text",
    [
        "Just for today I prefer horror.",
        "For this gift, I love hardcover.",
        "This time I want something in paperback.",
        "今回だけホラーがいいです。",
        "今日はコメディの気分です。",
    ],
)
def test_a_wish_for_one_occasion_is_no_preference(text: str) -> None:
    assert extract_preferences([text]) == []


def test_a_lasting_preference_beside_a_wish_for_one_occasion_is_kept() -> None:
    found = extract_preferences(["I love romance. Just for today, show me horror."])
    assert [(each.slot, each.value) for each in found] == [("genre", "romance")]
