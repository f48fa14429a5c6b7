"""SessionSummary: what a conversation comes to, by rules where no model is at hand, and what every summary is checked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from strands_manga_memory.language.acts.act_rules import DialogueAct
from strands_manga_memory.language.acts.acts import dialogue_act
from strands_manga_memory.language.preferences.attitude import attitude
from strands_manga_memory.language.preferences.preferences import heard_in, stated_preferences
from strands_manga_memory.language.search.lexical import overlap
from strands_manga_memory.language.search.terms import content_words
from strands_manga_memory.language.slots.verification import Text, verify
from strands_manga_memory.language.texts.condense import sentences
from strands_manga_memory.language.texts.excerpts import excerpt
from strands_manga_memory.language.texts.marks import without_marks
from strands_manga_memory.language.texts.tokens import cut_to_tokens, estimated_tokens, shortened

Sentiment = Literal["positive", "neutral", "negative"]

MOST_TOPICS = 5
MOST_OPEN = 5
_LEAST_OVERLAP = 0.15
_ANSWERED_OVERLAP = 0.4
_SHORT_SOURCE = 40
"""A summary may be longer than a source of less than so many tokens."""
_QUOTED = re.compile(r"[『「“\"]([^』」”\"]{2,40})[』」”\"]")
_NAMES = re.compile(r"(?<![.!?:\n] )(?<!^)\b[A-Z][\w'-]+(?: (?:of |the |no |to )?[A-Z0-9][\w'-]*)*", re.MULTILINE)
_ADDRESS = re.compile(
    r"\b(?:i'm|i am|my name is|my name's|call me|this is|hello|hi|hey|dear|welcome back|thank you|thanks|see you"
    r"|bye),? [A-Z]\w+"
    r"|,\s[A-Z]\w+(?=[!.?])",
    re.IGNORECASE,
)
"""A name by which somebody is introduced or addressed, which is no subject."""
_KATAKANA = re.compile(r"[ァ-ヴー]{3,}")
_UNANSWERED = re.compile(
    r"\b(?:let me check|i(?:'ll| will) (?:check|find out|get back|look into)|not sure|don't know|do not know"
    r"|can(?:'t|not) (?:tell|say|confirm))\b"
    r"|確認(?:いたします|します|いたし)|わかりかね|分かりかね|お調べ|存じません",
    re.IGNORECASE,
)
_NO_TOPIC = frozenset(
    ("User Assistant Yes No Hi Hello Thanks Thank OK Okay Please Could Would Can Do What When Where I I'm I'd I've").split()  # noqa: SIM905
)


class SessionSummary(BaseModel):
    """What a conversation comes to.

    Attributes:
        text: About two sentences.
        topics: Up to 5 titles or subjects.
        sentiment: ``positive``, ``neutral`` or ``negative``.
        preferences: What the user prefers, one value for each key.
        open_questions: What was asked and not answered.
        by_rules: True if no model wrote it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str
    topics: tuple[str, ...] = ()
    sentiment: Sentiment = "neutral"
    preferences: dict[str, str] = Field(default_factory=dict)
    open_questions: tuple[str, ...] = ()
    by_rules: bool = False


Line = tuple[str, str]
"""Role (``user`` or ``assistant``) and text of a message."""


class SessionSummarizer(Protocol):
    """Summarizes the lines of a conversation."""

    def __call__(self, lines: Sequence[Line], *, max_tokens: int) -> SessionSummary:
        """Return a summary whose text has at most ``max_tokens`` tokens; raise whatever went wrong."""
        ...


class SessionSummaryError(ValueError):
    """A model's summary cannot be used: it is empty, a refusal, longer than its source, or about something else."""


class RuleSessionSummarizer:
    """Summarizes by rules: what was asked first and last, topics by their names, sentiment by words. Needs no model."""

    def __call__(self, lines: Sequence[Line], *, max_tokens: int) -> SessionSummary:
        """Return the summary; it never fails."""
        lines = [(role, said) for role, text in lines if (said := without_marks(text))]
        topics = topics_of([text for _, text in lines])
        preferences = stated_preferences(text for role, text in lines if role == "user")
        text = cut_to_tokens(_summary_text(lines), max_tokens)
        return SessionSummary(
            text=text,
            topics=tuple(topics),
            sentiment=sentiment_of(text for role, text in lines if role == "user"),
            preferences=preferences,
            open_questions=tuple(open_questions_of(lines)),
            by_rules=True,
        )


def _summary_text(lines: Sequence[Line]) -> str:
    """Return two sentences: the first and the last request of the user, each in their own words, and the last answer.

    Requests are questions; without any, other sentences than instructions and preferences, which are stored as such.
    """
    said = [
        each.strip() for role, text in lines if role == "user" for each in sentences(excerpt(text)) if _says_something(each)
    ]
    requests = [each for each in said if _is_question(each)] or [each for each in said if not heard_in([each])] or said
    if not requests:
        return "A short exchange without a request."
    answers = [text for role, text in lines if role == "assistant" and _says_something(text, "assistant")]
    answer = shortened(next(sentences(answers[-1]), answers[-1]).strip(), 90) if answers else ""
    first, last = (shortened(each, 90) for each in (requests[0], requests[-1]))
    if not first.isascii() and _KANA.search(first):
        asked = f"ユーザーは「{first}」、最後に「{last}」と言った。" if last != first else f"ユーザーは「{first}」と言った。"
        return f"{asked}最後の回答は「{answer}」。" if answer else asked
    asked = f'The user said "{first}" and later "{last}".' if last != first else f'The user said "{first}".'
    return f'{asked} The last answer was "{answer}".' if answer else asked


_KANA = re.compile(r"[\u3040-\u30ff]")


def checked(summary: SessionSummary, source: str, max_tokens: int) -> SessionSummary:
    """Return a summary cut to ``max_tokens``, after the checks that hold for every summary; see ``verify``.

    Raises:
        SessionSummaryError: It is empty, a refusal, an instruction, longer than its source, names an entity that its source
            does not hold, or shares no words with it.
    """
    text = " ".join(summary.text.split())
    verdict = verify(
        text,
        source=Text(source),
        source_tokens=max(estimated_tokens(source), _SHORT_SOURCE) + 1,
        required=(),
        most_tokens=estimated_tokens(text),
        count=estimated_tokens,
    )
    if not verdict.is_usable:
        raise SessionSummaryError(f"the summary cannot be used: {'; '.join(verdict.problems)}")
    # A summary in another script than its source shares only names with it, so nothing can be said about that.
    if text.isascii() == source.isascii() and overlap(text, source) < _LEAST_OVERLAP:
        raise SessionSummaryError("the summary is about something else")
    return summary.model_copy(update={"text": cut_to_tokens(text, max_tokens)})


def topics_of(texts: Sequence[str]) -> list[str]:
    """Return up to 5 titles or subjects of some texts: quoted ones, names, katakana words; else the most frequent words."""
    counts: Counter[str] = Counter()
    for text in map(excerpt, texts):
        found = [title.strip() for title in _QUOTED.findall(text)]
        found += [name for name in _NAMES.findall(_ADDRESS.sub(" ", text)) if name not in _NO_TOPIC]
        found += _KATAKANA.findall(_QUOTED.sub(" ", text))
        counts.update(list(dict.fromkeys(found)))
    if not counts:
        counts.update(word for text in texts for word in content_words(text) if len(word) > 3)
    return [topic for topic, _ in counts.most_common(MOST_TOPICS)]


def sentiment_of(texts: Any) -> Sentiment:
    """Return the sentiment of a user's texts by words; what was said last counts twice. A taste is no sentiment."""
    scores = [sum(map(_feeling, sentences(excerpt(text)))) for text in texts]
    score = sum(scores) + sum(scores[-1:])
    return "positive" if score > 0 else "negative" if score < 0 else "neutral"


def _feeling(sentence: str) -> int:
    """Return how well a sentence speaks of whom it is said to: nothing, where it tells a taste or asks about a thing."""
    score = attitude(sentence)
    if not score or (_ASKS_OF_A_THING.search(sentence) and not _OF_MYSELF.search(sentence)) or heard_in([sentence]):
        return 0
    return score


_ASKS_OF_A_THING = re.compile(
    r"\A\W*(?:is|are|was|were|does|do|did|which|what|how (?:much|many|long is|old)|who|where|when|can|could|may)\b.*\?\s*\Z"
    r"|(?:です|ます|でしょう|どれ|ありません)か?[。]?[?？]\s*\Z|(?:です|ます|でしょう)か[。]?\s*\Z",
    re.IGNORECASE,
)
_OF_MYSELF = re.compile(
    r"\b(?:i|my|me|we|our|why|what a|anybody|anyone|nobody)\b|どうして|なぜ|何度|いつまで|どうなって|すぎ", re.IGNORECASE
)


def open_questions_of(lines: Sequence[Line]) -> list[str]:
    """Return the questions of the user that got no answer, or one that puts it off."""
    found: list[str] = []
    for at, (role, text) in enumerate(lines):
        if role != "user" or not _is_question(text):
            continue
        answers = [other for who, other in lines[at + 1 :] if who == "assistant" and other.strip()]
        # An answer that puts it off leaves it open, unless a later one comes back to it.
        settled = any(
            overlap(text, answer) >= _ANSWERED_OVERLAP for answer in answers[1:] if not _UNANSWERED.search(excerpt(answer))
        )
        if not answers or (_UNANSWERED.search(excerpt(answers[0])) and not settled):
            found.append(shortened(text, 120))
    return found[-MOST_OPEN:]


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "？", "ですか", "ますか", "でしょうか"))


def _says_something(text: str, role: str = "user") -> bool:
    acts = (DialogueAct.GREETING, DialogueAct.FAREWELL, DialogueAct.ACKNOWLEDGEMENT)
    return bool(text.strip()) and dialogue_act(text, role) not in acts
