"""What a user's message does depends on what it replies to."""

from __future__ import annotations

import pytest

from strands_manga_memory.language import dialogue_act
from strands_manga_memory.language.dialogue_acts import act_of_reply
from strands_manga_memory.language.text_features import text_features


def after(answer: str, text: str) -> str:
    return str(act_of_reply(text, answer, str(dialogue_act(text, "user")), text_features(text)[0]))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Unfortunately, the box set is sold out and not available.", "Volumes 1 to 3 in paperback, please."),
        ("I was unable to reserve a seat at the signing. Another time?", "Half past five works for us."),
        ("I'm sorry, that edition is unavailable.", "Could you try the hardcover?"),
        ("Shall I send it on Monday?", "No, on Thursday."),
        ("No, sorry?", "I meant the second one."),
        ("There are no first editions of it.", "Do you have a reprint?"),
        ("I don't see any copies in that size.", "What about the large one?"),
        ("Would you like the box set?", "Actually, I want the single volumes."),
        ("申し訳ございません。その日は予約できませんでした。", "では、18時だといかがですか？"),
        ("あいにく限定版は見つかりませんでした。", "それなら通常版にしてください。"),
        ("本日は満席です。", "じゃあ、明日でお願いします。"),
    ],
)
def test_another_value_than_was_spoken_of_corrects(answer: str, text: str) -> None:
    assert after(answer, text) == "correction"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Would you like me to order it for you?", "No, I just need the shipping cost."),
        ("Shall I put it in your cart?", "No, but tell me who drew the cover."),
        ("Is there anything else?", "Actually yes, when do you close?"),
        ("That title is sold out.", "I also need a gift card for 20 dollars."),
        ("Which genre would you like?", "How about horror?"),
        ("Is there a genre you like best?", "How about horror?"),
        ("So that is two copies, right?", "Yes, two copies."),
        ("What about you?", "What about you?"),
        ("Can I help you with anything else?", "Actually, I need a gift card."),
        ("You're welcome. Goodbye!", "Wait, when do you open?"),
        ("The atlas weighs 2 kilos.", "What about the height?"),
        ("The atlas costs 40 dollars.", "And how about a globe?"),
        ("The atlas costs 40 dollars.", "Actually, I also need a globe."),
        ("Your parcel is on its way. I am glad to help further.", "How about a bookmark for it?"),
        ("How many copies do you need?", "Actually, I only wonder who drew it."),
        ("すみません、その本は在庫切れです。", "いつ入荷するか教えてください。"),
        ("申し訳ございません、該当する店舗がございません。", "では、駐車場はなくても構いません。"),
        ("条件に合うものは見つかりませんでした。通常版ならございます。", "では、そちらをお願いします。"),
        ("他にご用件はございませんか。", "いえ、あとは大丈夫です。"),
        ("他にご用件はございませんか。", "では、3巻の値段はどうなりますか。"),
    ],
)
def test_a_refused_offer_an_agreement_and_what_comes_besides_correct_nothing(answer: str, text: str) -> None:
    assert after(answer, text) != "correction"


@pytest.mark.parametrize("text", ["Thanks!", "I prefer hardcover.", "Always answer in French.", "My name is Rin.", ""])
def test_acts_that_no_reply_changes(text: str) -> None:
    assert after("Unfortunately, it is not available.", text) == dialogue_act(text, "user")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("では、初版でなくても構いません。", "unmatched"),
        ("では、ジャンルは何でもいいです。", "unmatched"),
        ("神保町駅の近くでなくてもいいので、カフェの併設された書店はありますか。", "constraint"),
        ("文庫版でお願いします。", "constraint"),
        ("Romance, and nothing sad", "constraint"),
    ],
)
def test_a_condition_that_is_let_go_sets_none_unless_another_is_set_beside_it(text: str, expected: str) -> None:
    said = str(dialogue_act(text, "user"))
    assert (
        act_of_reply(text, "申し訳ございません。いかがなさいますか。", said, text_features(text)[0], answers=True) == expected
    )
