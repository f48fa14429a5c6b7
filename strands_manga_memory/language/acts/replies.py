"""What a user's message does as a reply: after "there is no table at seven", "how about eight?" corrects. Pure.

The same words correct, answer or ask, by what they reply to. So the rules read the end of the assistant's message as well: it
refused something, offered something, or said goodbye. And whoever names a value to somebody who serves sets a condition, unless
the sentence points at what was offered: then it asks about that.
"""

from __future__ import annotations

import re

from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act, plain
from strands_manga_memory.language.acts.traits import Traits, traits


class Phrases:
    """A pattern for texts in lower case; to save time it is searched only if one of its cues, separated by commas, is there."""

    def __init__(self, cues: str, pattern: str) -> None:
        self._cues = tuple(cues.split(","))
        self._pattern = re.compile(pattern)

    def are_in(self, lower: str) -> bool:
        """Whether a text says one of them."""
        for cue in self._cues:
            if cue in lower:
                return self._pattern.search(lower) is not None
        return False


DECLINES = Phrases(
    "un,not,n't,sorry,no ,booked,another,different,full,満席,満室,売り切れ,在庫切れ,取れま,できま,出来ま,ありませ,ございませ"
    ",見つか,失敗",
    r"\b(?:unfortunately|unable to|unsuccessful|unavailable|(?:was|were|is|are) not (?:available|able|successful|possible)"
    r"|(?:was|were|is|are|could|did)n't (?:available|able|successful|possible|book|find|work)|could not (?:book|find|get|make)"
    r"|no (?:availability|tables?|rooms?|seats?|openings?)\b|(?:fully|all) booked|(?:they|it) (?:are|is) (?:booked|full)"
    r"|(?:another|different) (?:time|day|date|length|number))"
    r"|満席|満室|売り切れ|在庫切れ|取れませ|(?:でき|出来|あり|ござい)ませ(?!んか)(?<!とんでもございませ)|見つかりませ|失敗",
)
"""The assistant says that something cannot be had: a value the user gives next stands for the one that could not."""

_FINDS_NONE = Phrases(
    "no ,none,nothing,any,sold out,out of stock",
    r"\b(?:there (?:is|are|were|was)|there's|have|see|find|found) (?:no|none|nothing)\b|\bno (?:match|result|other)"
    r"|\bnothing (?:like|that|in|for|available|found)\b|\bnone (?:of|available|found|left|in)\b"
    r"|(?:\bnot|n't)(?: \w+){0,2} any(?:thing)?\b|\bsold out\b|\bout of stock\b",
)
"""The assistant says that there is no such thing: what the user asks for next stands for it."""

ELSE = re.compile(
    r"\b(?:also|too|as well|in addition|(?:i|we)(?:'ll| will)? (?:also )?need a|(?:and|now)[ ,]+(?:how|what) about)\b"
    r"|それと|それから|あと、|ほかに|他に"
)
"""Of what begins so, the next thing is spoken."""

_COUNTERS = Phrases(
    "about,instead,make,work",
    r"\b(?:how|what) about (?!(?:you|your|that|it|this|me|us)\b)\w|\binstead\b|\bmake (?:it|that)\b"
    r"|\b(?:won't|doesn't|does not|will not) work\b",
)
"""The user says what is wanted in place of what was spoken of."""
_ASKS_ABOUT = re.compile(r"\bwhat about the\b")
"""The user asks about something more of what was spoken of, unless a value follows: "what about the wind?"."""
_TRIES = re.compile(r"\btry\b|\bthen\b|\b(?:how|what) about\b")
_ASKS_FOR = re.compile(r"\b(?:is|are) there\b|\bdo you have\b|\b(?:find|check|look(?: up| for)?|any)\b")
_ACCEPTS = re.compile(
    r"\A(?:yes|yeah|yep|yup|ok|okay|sure|correct|right|great|good|perfect|fine|sounds|looks"
    r"|that(?:'s| is| will| works| sounds))\b"
)
_REFUSES = re.compile(r"\A(?:no|nope|nah)\b[,.! ]+")
_AGREES = re.compile(r"\A(?:(?:yes|yeah|yep|sure)\b[ ,.]*actually|(?:no[ ,.]*)?actually[ ,]+(?:yes|yeah|yep|sure))\b")
_TURNS = re.compile(r"\A(?:no[ ,.]*)?(?:actually|wait|i actually)\b[ ,.]*")
_CLOSES = re.compile(
    r"\b(?:anything|something) else\b|\bfurther\b|\bhelp (?:you )?with\b|\b(?:good ?bye|bye|welcome|pleasure)\b"
    r"|\b(?:good|nice|great|lovely|wonderful) (?:day|evening|night|time|stay|trip)\b"
)
"""Nothing is open any more: with "actually" something new begins, and nothing is there to counter."""
_WHETHER_ANY = r"(?:is|are) there (?:an?|any)|(?:do|did|would) you have (?:an?|any)"
_ANY = re.compile(rf"\b(?:{_WHETHER_ANY})\b")
"""Whether there is a wish at all: a "no" takes none back."""
_OPEN = re.compile(rf"\b(?:what|which|where|when|who|how (?:many|much|long|about)|{_WHETHER_ANY})\b")

_JAPANESE_COUNTERS = re.compile(
    r"(?:\A|[、。 ])(?:それ)?(?:では|じゃあ?|なら|でしたら|だったら|であれば|そ(?:う)?したら)"
    r"|(?:だと|たら|なら|では)(?:どう|いかが|どこか|予約|あり|でき|お願い)"
    r"|でも(?:いい|良い|よい|大丈夫|構い|かまい|結構)|に(?:して|変え|変更|ずらし)"
)
_JAPANESE_LETS_GO = re.compile(
    r"(?:な|無)くて|(?:なし|無し)で|(?:どこ|何|なん|いつ|どれ|どちら|どの\w{1,8}|誰)でも|以外でも|問(?:わ|いません)|諦め|あきらめ"
    r"|考え(?:な|る必要)|考慮し(?:な|ま)|気にし(?:な|ま)|限定し(?:な|ま)|除い|外し"
    r"|こだわ[らり][^。]{0,6}(?:な[いくし]|ません|ず)"
)
"""A condition is let go: no other value takes its place."""
_JAPANESE_TAKES_OR_ASKS = re.compile(
    r"(?:そちら|そこ|そのお?店|その方|その場所)|それ(?:を|に|で(?!す|は))|教えて|何(?:です|でしょう)|どこですか|いくら"
)
"""What was offered instead is taken, or asked about."""
_JAPANESE_REFUSES = re.compile(
    r"\A(?:いや|いえ|いいえ)[、,。 ][^。]{0,20}(?:大丈夫|結構|ありません|ございません|ないです|必要(?:あり|ない)|不要)(?!か)"
    r"|(?:他|ほか)に[^。]{0,10}(?:ありません|ないです|ないんです)(?!か)"
)
"""Nothing more is wanted: that takes nothing back."""

_POINTS = re.compile(
    r"\b(?:it|its|that|this|(?<!is )(?<!are )there|they|them|their|those|one)\b|そちら|そこ|その|それ|こちら", re.IGNORECASE
)
"""What points at something spoken of asks about that, or talks of it."""

_PART = re.compile(r"[^、。！？!?\n]+")
_SENTENCE = re.compile(r"(?:[^.。！？!?\n]|\.(?!\s))+")

_SHORT, _END = 300, 100
"""What the user replies to: a short answer, of a longer one the last words."""

_OPEN_TO_CHANGE = frozenset({DialogueAct.CONSTRAINT, DialogueAct.DECISION, DialogueAct.UNMATCHED})


def act_of_reply(text: str, answer: str, act: str, shown: Traits, *, answers: bool = False) -> str:
    """Return what a user's message does after what the assistant said.

    A correction may turn out to be none - "no, just the address" refuses an offer - and what gives another value after a
    refusal is one, whatever its words. What gives a value otherwise is a constraint. Other acts stay what they are.

    Args:
        text: What the user says.
        answer: What the assistant said before.
        act: What the message does by its own words (``dialogue_act``).
        shown: Its traits (``traits``).
        answers: Whether it says something after a question: that is how something is to be.
    """
    said, before = plain(text), plain(answer if len(answer) <= _SHORT else answer[-_END:])
    if act == DialogueAct.CORRECTION:
        return _without_refusal(said, before)
    if act in _OPEN_TO_CHANGE and not ELSE.search(said) and _changes(said, before, act, shown):
        return DialogueAct.CORRECTION.value
    if _gives_value(text, act, shown) or (act == DialogueAct.UNMATCHED and answers and not shown.asks):
        act = DialogueAct.CONSTRAINT.value
    return DialogueAct.UNMATCHED.value if act == DialogueAct.CONSTRAINT and _only_lets_go(said) else act


def _only_lets_go(said: str) -> bool:
    """Whether a condition is let go, and none is set beside that."""
    if said.isascii() or not _JAPANESE_LETS_GO.search(said):
        return False
    rest = "、".join(part for part in _PART.findall(said) if not _JAPANESE_LETS_GO.search(part))
    return not _has_value(traits(rest)[0]) and dialogue_act(rest, "user") != DialogueAct.CONSTRAINT


def _gives_value(text: str, act: str, shown: Traits) -> bool:
    """Whether a message that decides, or that no rule knows, says how something is to be: a sentence has a value of its own."""
    if act == DialogueAct.DECISION:
        return shown.number or shown.time
    if act != DialogueAct.UNMATCHED or not _has_value(shown):
        return False
    own = [one for one in _SENTENCE.findall(text) if not _POINTS.search(one) and not _JAPANESE_LETS_GO.search(one)]
    return any(_has_value(traits(one)[0]) for one in own)


def _has_value(shown: Traits) -> bool:
    return shown.number or shown.time or shown.names > 0


def _changes(said: str, before: str, act: str, shown: Traits) -> bool:
    """Whether a message gives another value than the one that was spoken of."""
    finds_none = _FINDS_NONE.are_in(before)
    was_declined = finds_none or DECLINES.are_in(before)
    if not said.isascii():
        return (
            was_declined
            and _JAPANESE_COUNTERS.search(said) is not None
            and _JAPANESE_TAKES_OR_ASKS.search(said) is None
            and _JAPANESE_LETS_GO.search(said) is None
        )
    says_how = act == DialogueAct.CONSTRAINT or _has_value(shown)
    if was_declined and (says_how or _TRIES.search(said) or (finds_none and _ASKS_FOR.search(said))):
        return True
    if not _COUNTERS.are_in(said) or _ACCEPTS.match(said) or _CLOSES.search(before):
        return False
    return (says_how or not _ASKS_ABOUT.search(said)) and _OPEN.search(_question(before)) is None


def _without_refusal(said: str, before: str) -> str:
    """Return the act of what seems to correct, without a "no" that answers an offer and an "actually" that agrees."""
    if _JAPANESE_REFUSES.search(said) or _JAPANESE_LETS_GO.search(said):
        return DialogueAct.UNMATCHED.value
    question = _question(before)
    takes_nothing_back = _CLOSES.search(before) or _OPEN.search(question) or ELSE.search(said)
    begins_anew = _AGREES.match(said) or (_TURNS.match(said) if takes_nothing_back else None)
    if begins_anew:
        return dialogue_act(said[begins_anew.end() :], "user").value
    refuses = _REFUSES.match(said)
    if refuses is None or not question:
        return DialogueAct.CORRECTION.value
    rest = said[refuses.end() :]
    asked, told = traits(question)[0], traits(rest)[0]
    is_other_value = (asked.number and told.number) or (asked.time and told.time)  # "On Monday?" - "No, on Friday."
    if (is_other_value and not _ANY.search(question)) or _COUNTERS.are_in(rest):
        return DialogueAct.CORRECTION.value
    return dialogue_act(rest, "user").value


def _question(before: str) -> str:
    """Return the question a message ends with; nothing if it ends with none."""
    before = before.rstrip()
    if not before.endswith("?"):
        return ""
    return before[max(before.rfind(end, 0, -1) for end in ".!?\n") + 1 :]
