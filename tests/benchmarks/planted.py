"""Long conversation with planted facts, and scripted summarizers that lose or invent facts.

Unknown to the package.
"""

import random
from dataclasses import dataclass
from typing import Any

from strands_manga_memory.language import normalized
from tests.benchmarks import text

TURNS = 200


@dataclass(frozen=True)
class Fact:
    """Fact that the user states once.

    Attributes:
        turn: Turn of the statement.
        said: Words of the statement.
        value: Value that must be found later, in any spelling.
        replaced: Turn in which the fact stops being true; None if it stays true.
    """

    turn: int
    said: str
    value: str
    replaced: int | None = None


FACTS = (
    Fact(1, "My sister Keiko gave me the first box set.", "Keiko"),
    Fact(2, "I collect everything by the illustrator Marugame.", "Marugame"),
    Fact(4, "The gate code of our building is 4417.", "4417"),
    Fact(5, "配達先は神戸市灘区の実家です。", "灘区"),
    Fact(7, "My budget for this month is 12,000 yen.", "12,000", replaced=96),
    Fact(9, "I am allergic to latex gloves, so the courier must not wear them.", "latex"),
    Fact(11, "My order ORD-55120 has not arrived.", "ORD-55120", replaced=25),
    Fact(13, "Please never send me anything with spoilers beyond volume 17.", "volume 17"),
    Fact(16, "We are moving house on March 3rd.", "March 3rd", replaced=61),
    Fact(18, "私は猫アレルギーなので、猫の出る作品は避けたいです。", "猫アレルギー"),
    Fact(21, "The parcel should go to locker 88 at the station.", "locker 88"),
    Fact(24, "My nephew is called Tadao and he is nine.", "Tadao"),
    Fact(25, "Sorry, I meant order ORD-55210.", "ORD-55210"),
    Fact(27, "I already own volumes 1 to 6 of the lighthouse series.", "lighthouse"),
    Fact(33, "You can write to me at momo.iida@example.jp.", "momo.iida@example.jp"),
    Fact(38, "第21巻だけ初版でほしいです。", "21巻"),
    Fact(41, "My customer number is KX77-2041.", "2041"),
    Fact(47, "We meet the book club every other Thursday at 18:40.", "18:40"),
    Fact(52, "The gift for Anselm must be wrapped in green paper.", "Anselm"),
    Fact(58, "I want the edition with ISBN 978-4-08-882310-9.", "ISBN 978-4-08-882310"),
    Fact(61, "No, we are moving house on March 19th instead.", "March 19th"),
    Fact(63, "Let's go with the slipcase of the Orchard Trilogy.", "Orchard Trilogy"),
    Fact(67, "届くのは土曜日の午前中がいいです。", "土曜日の午前"),
    Fact(71, "My train pass covers only Hankyu lines.", "Hankyu"),
    Fact(76, "The invoice has to name the Sumiyoshi library.", "Sumiyoshi"),
    Fact(84, "My phone number is 078-555-0142.", "078-555-0142"),
    Fact(92, "I promised my father a large-print copy.", "large-print"),
    Fact(96, "Actually, my budget for this month is 15,000 yen.", "15,000"),
    Fact(101, "Discount code PEONY25 did not work yesterday.", "PEONY25"),
    Fact(108, "夫の誕生日は11月22日です。", "11月22日"),
    Fact(114, "I would like to pay with the card ending in 0917.", "0917"),
    Fact(121, "My favourite letterer is Ubukata.", "Ubukata"),
    Fact(129, "Only the hardback is acceptable for the atlas.", "atlas"),
    Fact(136, "We need 7 copies of the reading guide for class.", "7 copies", replaced=146),
    Fact(143, "絶版の『霧の郵便局』を探しています。", "霧の郵便局"),
    Fact(146, "Actually, make it 9 copies of the reading guide.", "9 copies"),
    Fact(150, "Do not ring, the baby Noemi sleeps in the afternoon.", "Noemi"),
    Fact(158, "The replacement belongs to case RT5590Q.", "RT5590Q"),
    Fact(167, "My desk at work is on floor 23.", "floor 23"),
    Fact(175, "I read only right-to-left editions.", "right-to-left"),
    Fact(184, "The old address in Ashiya is no longer valid.", "Ashiya"),
    Fact(192, "Please hold everything until the 28th of May.", "May 28"),
)

_SMALL_TALK = (
    "Could you tell me a little more about that one, and whether other readers liked it?",
    "That sounds interesting. What is the art like, and is it more of a slow story?",
    "Thanks! And which one would you read after it, if you had the choice?",
    "Hmm, I am not sure yet. Is there anything similar that is a bit shorter?",
    "Good to know. How do the printed ones compare with the digital ones?",
    "なるほど。もう少し詳しく教えてもらえますか。",
    "ありがとうございます。ほかにも似たものはありますか。",
    "Okay. Is it the kind of thing one can begin in the middle?",
)


def prompt(turn: int) -> str:
    """Return the user's message of a turn, counted from 1: small talk around a fact."""
    before, after = (
        _SMALL_TALK[turn % len(_SMALL_TALK)],
        _SMALL_TALK[(turn * 5 + 3) % len(_SMALL_TALK)],
    )
    return "\n".join([before, *(fact.said for fact in FACTS if fact.turn == turn), after])


def answer(_: Any) -> str:
    """Return the assistant's message: some 100 tokens of prose."""
    return text(480)


def current(turn: int) -> list[Fact]:
    """Return the facts that were stated up to a turn and are still true."""
    return [f for f in FACTS if f.turn <= turn and (f.replaced is None or f.replaced > turn)]


def is_in(value: str, view: str) -> bool:
    """Return whether a view of the conversation has a value, in any form of the value."""
    return _last(value, view) >= 0


def stale_facts(view: str) -> list[Fact]:
    """Return the replaced facts of the conversation whose old value is the last one in a view."""
    new = {fact.turn: fact for fact in FACTS}
    replaced = [(fact, new[fact.replaced]) for fact in FACTS if fact.replaced]
    return [old for old, new in replaced if _last(old.value, view) > _last(new.value, view)]


def _last(value: str, view: str) -> int:
    return max(
        normalized(view).rfind(normalized(form)) for form in (value, _OTHER_FORMS.get(value, value))
    )


_OTHER_FORMS = {"May 28": "28th of May", "11月22日": "11-22"}


class Dropping:
    """Summarizer that writes each planted fact it finds with probability ``p``."""

    def __init__(self, p: float = 0.5, *, adds: str = "") -> None:
        self._random = random.Random(7)
        self._p, self._adds = p, adds

    def __call__(self, messages: Any) -> str:
        source = _source(messages)
        kept = [f.said for f in FACTS if f.said in source and self._random.random() < self._p]
        return " ".join(
            ["The user and the assistant talked about books.", *kept, self._adds]
        ).strip()


def refusing(_: Any) -> str:
    """Refuse to summarize."""
    return "I'm sorry, but I can't help with summarizing this conversation."


def copying(messages: Any) -> str:
    """Return the whole conversation unchanged."""
    return _source(messages)


def _source(messages: Any) -> str:
    return "\n".join(block["text"] for m in messages for block in m["content"] if "text" in block)


SUMMARIZERS: dict[str, Any] = {
    "dropping_half": lambda: Dropping(0.5),
    "hallucinating": lambda: Dropping(1.0, adds="Order ORD-99999 over 98,765 yen was confirmed."),
    "refusing": lambda: refusing,
    "copying": lambda: copying,
}
INVENTED = ("ORD-99999", "98,765")
