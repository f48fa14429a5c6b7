"""Courtesy in English: the vocabulary of greetings, thanks and farewells, which carry no weight."""

from __future__ import annotations

import re

from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.text_forms import word_set

_THANKS = word_set("appreciate appreciated grateful thank thanks thx")
_CLOSING = word_set("bye cya enjoy farewell goodbye goodnight tc")
_HELLO = word_set("greetings hello hey hi hii hiya howdy")
_YES = word_set(
    "absolutely agreed alright amazing awesome certainly cool correct course definitely exactly excellent "
    "fantastic fine good gotcha great k lovely nice noted ok okay perfect pleasure right sounds sure uh-huh "
    "understood welcome wonderful works yeah yep yes yup"
)
_ANSWERS = word_set("nah no nope nothing yeah yep yes yup")
_COURTESY = (
    _THANKS
    | _CLOSING
    | _HELLO
    | _YES
    | word_set(
        "a about afternoon again ahead all am an and any anyone anything anytime are as ask assist assistance "
        "assisted assisting at awaits back be bed been being best big bit booking both bring bubye bunch but "
        "by call called calling can care chat come confirm confirmed confirms contact contacting could day "
        "days delightful details did do does doing don't done drop easy else end enough evening ever every "
        "everyone everything exciting extremely fantastic feel few finished flight folks for free friend fun "
        "further future gave get give giving glad go going gonna guess had happy have having he'll help helped "
        "helpful helping here him hope how i i'd i'll i'm i've ideal if in info information is it it'd it'll "
        "it's its journey just keep kind know later let let's life like looking lot lots love luck ma'am madam "
        "made make makes making many may me memorable moment more morning most much my need needed needs next "
        "night no nope not nothing now of off oh okay on once one or other our out patience pay perfectly "
        "pleasant please pleased problem provided providing questions quick quite re reach reading really "
        "reservation rest ride s safe said same say seems service services set she sir so some soon splendid "
        "stay stop suit suits super superb support take talk team terrific than that that'd that'll that's "
        "thats the their them then there there's these they thing things think this those time to today "
        "together tomorrow tonight too travel traveling travels trip truly try understand until us use using "
        "very visit wait want wanted was way we we'll we're we've weekend well were what's when will wish with "
        "won't wonderful work worries would ya you you'd you'll you're you've your yours yourself"
    )
)
_ASKS_HOW = re.compile(r"how(?: are (?:you|things)| (?:can|may|could) (?:i|we)|(?:'s| is) it going)|what can i")
_BYE = re.compile(
    r"\b(?:good ?bye|bye|take care|good ?night|until next time|talk to you|see (?:you|ya)|tc|cya|enjoy"
    r"|(?<!n't )(?<!not )(?:have|having|wish you) (?:a|an|yourself|the)\b"
    r"|(?:glad|happy|pleased|pleasure) (?:\w+ ){0,4}(?:help\w*|assist\w*"
    r"|service)|safe \w+|good day|(?<!hi )(?<!hey )(?<!hello )again)\b"
)
_CLOSED = re.compile(
    r"\b(?:all (?:i|that i|for|i'll)|(?:that|this|it)(?:'s| is| was| will be|'ll be| should be)(?: \w+)? (?:all|it"
    r"|everything|enough)|nothing(?: else| more)?"
    r"|(?:don't|do not|won't|no) (?:need|further|more)|all set|i'm (?:done|good|finished)|that will do)\b"
)
_SEEN = re.compile(r"\bi see\b|\bgot it\b")
_LATER = re.compile(r"\bnot (?:right )?(?:now|yet|at (?:the|this))\b|\bplease (?:do|make|go)\b")
_FOR_CALLING = re.compile(
    r"\bthank(?:s| you) for (?:calling|choosing|contacting|inquiring|shopping|using|visiting)\b[^.!?,]{0,40}"
)
_HI = re.compile(
    r"\A\W*(?:hi+|hello+|hey+|hiya|howdy|greetings|welcome(?! \w+ to you)|nice to meet|good (?:morning|afternoon"
    r"|evening))\b(?!,? (?:you|you're))"
)
_ACCEPTS = re.compile(
    r"\b(?:sounds?|seems?|works?|suits?|would be|(?:that|it|this)(?: one)?(?:'?s| is)(?: \w+)? (?:good|great|fine|perfect"
    r"|nice|okay|ok|awesome|wonderful|cool))\b"
)
_WORD = re.compile(r"[a-z0-9'$&#%-]+")
_REPLIES = re.compile(
    r"\A\W{0,4}(?:yes|yeah|yep|yup|no|nope|nah)\b[,.! ]{1,3}(?:i|we|it|they|he|she|there|those|these)(?:'m|'ve|'s|'re)?"
    r" ?(?:do|does|did|am|is|are|was|were|have|has|had|can|could|will|would|should"
    r"|(?:do|does|did|is|are|was|were|have|has|can)n't"
    r"|don't|can't|won't)(?: not)?\W*\Z"
)
"""Yes or no with its verb, "Yes, I do": the answer to a question, not mere politeness."""
_LONGEST_COURTESY = 160
_MOST_WORDS = 30


def courtesy(text: str, role: str) -> DialogueAct | None:
    """Return the act of a text in lower case that has only words of courtesy; beside thanks or a farewell one other may be."""
    if len(text) > _LONGEST_COURTESY:
        return None
    said = _WORD.findall(_FOR_CALLING.sub(" thanks ", text) if role == "assistant" else text)
    if not 0 < len(said) <= _MOST_WORDS:
        return None
    others = [word for word in said if word not in _COURTESY]
    if len(others) > 2 or any(not word.isalpha() for word in others):
        return None
    if role == "user" and _REPLIES.match(text):
        return None
    if "?" in text and not _ASKS_HOW.search(text):
        return None
    thanks = not _THANKS.isdisjoint(said)
    bye = _BYE.search(text) is not None
    if len(others) > (1 if thanks or bye else 0) + (role == "assistant" and bye):
        return None
    if _HI.search(text) and not bye:
        return DialogueAct.GREETING if not thanks or "?" in text else DialogueAct.ACKNOWLEDGEMENT
    if role == "assistant":
        if bye or thanks:
            return DialogueAct.FAREWELL
    elif thanks:
        return DialogueAct.ACKNOWLEDGEMENT
    if "?" in text:
        return DialogueAct.GREETING if _HELLO.intersection(said) or _ASKS_HOW.match(text) else None
    if bye or (role == "user" and said[0] not in _ANSWERS and _CLOSED.search(text)):
        return DialogueAct.FAREWELL
    if role == "user" and _LATER.search(text) and not _CLOSED.search(text):
        return None
    if role == "user" and said[0] not in _ANSWERS and _ACCEPTS.search(text):
        return DialogueAct.DECISION
    if role == "assistant" and said[0] in _ANSWERS and len(said) > 2:
        return None  # the answer to a question
    if said[0] in _ANSWERS or _SEEN.search(text) or not _YES.isdisjoint(said):
        return DialogueAct.ACKNOWLEDGEMENT
    return None
