"""The sentiment of what a user says, on lines of our own in two languages."""

from __future__ import annotations

import pytest

from strands_manga_memory.language.session_summaries import classify_sentiment
from tests.unit.language.taste_talk import FEELINGS

LINES = {
    "positive": [
        "Thank you so much!",
        "That was really helpful.",
        "Perfect, exactly what I needed.",
        "I'm very happy with the set.",
        "Great service!",
        "It works fine now, thanks.",
        "I appreciate your help.",
        "What a lovely edition.",
        "Not bad at all, thank you!",
        "You made my day.",
        "I love it!",
        "ありがとうございます！",
        "とても助かりました。",
        "最高でした！",
        "対応が早くて嬉しいです。",
        "満足しています。",
        "気に入りました。",
        "無事に届いてよかったです。",
        "さすがですね。",
        "本当に感謝しています。",
    ],
    "negative": [
        "I'm not happy with this at all.",
        "This is terrible.",
        "My order never arrived.",
        "I'm still waiting for volume 3!",
        "The cover is torn.",
        "You sent the wrong volume.",
        "That's not helpful.",
        "I want a refund.",
        "This is unacceptable.",
        "What a waste of money.",
        "It doesn't work.",
        "Nobody answers, I'm fed up.",
        "I am far from satisfied.",
        "The app keeps failing.",
        "so disappointed",
        "まだ届いていないんですけど。",
        "ページが破れていました。",
        "対応が悪いです。",
        "全然役に立たない。",
        "いい加減にしてください。",
        "がっかりしました。",
        "違う商品が来ました。",
        "嬉しくないです。",
        "遅すぎます。",
        "納得できません。",
        "二度と買いません。",
    ],
    "neutral": [
        "Do you have volume 3 of Uzumaki?",
        "I love horror manga.",
        "I hate gore.",
        "How much is it?",
        "Where is my order ORD-48502?",
        "My budget is 3000 yen.",
        "Please answer in English.",
        "Is it available in hardcover?",
        "I live in Osaka.",
        "What time do you close?",
        "第3巻はありますか？",
        "ホラーが好きです。",
        "値段を教えてください。",
        "予算は3000円です。",
        "英語でお願いします。",
        "注文を確認したいです。",
    ],
}


@pytest.mark.parametrize("listed", [LINES, FEELINGS])
@pytest.mark.parametrize("script", ["English", "Japanese"])
def test_sentiment_is_right_nine_times_of_ten(script: str, listed: dict[str, list[str]]) -> None:
    lines = [(line, kind) for kind, texts in listed.items() for line in texts if line.isascii() == (script == "English")]
    wrong = [(line, found) for line, kind in lines if (found := classify_sentiment([line])) != kind]
    assert len(wrong) <= 0.1 * len(lines), wrong


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (
            "negative",
            [
                "I was hoping for better service, to be honest.",
                "We had hoped for a nicer edition.",
                "I wish the packaging were better.",
                "The print could have been better.",
                "It should have been easy to return.",
                "Thanks for nothing.",
                "Thank you for wasting my afternoon.",
                "I've never been so disappointed.",
                "期待していたほどではありませんでした。",
                "聞いていたほど便利じゃないですね。",
                "もっと早く連絡してほしかったです。",
                "もう少し丁寧だとよかったのですが。",
            ],
        ),
        (
            "positive",
            [
                "It never gets boring, wonderful series.",
                "Never a dull moment with your shop.",
                "No delays, lovely packaging.",
                "Better than I had hoped.",
                "期待していた以上に良かったです。",
            ],
        ),
        (
            "neutral",
            [
                "I'd appreciate it if you could check my order.",
                "It would be nice if you could wrap it.",
                "I was hoping to find volume 3.",
                "早めに送っていただけると助かります。",
            ],
        ),
    ],
)
def test_what_is_wished_for_speaks_of_what_is_not_there(kind: str, lines: list[str]) -> None:
    assert {line: found for line in lines if (found := classify_sentiment([line])) != kind} == {}
