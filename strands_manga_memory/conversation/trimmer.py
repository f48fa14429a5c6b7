"""Trimmer, which keeps the history of one agent within its token budget."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from strands.types.content import Message
from strands.types.exceptions import ContextWindowOverflowException

from strands_manga_memory.conversation.budget import UNKNOWN_WINDOW, window_of
from strands_manga_memory.conversation.history import LogTail, ensure_ids
from strands_manga_memory.conversation.importance import (
    FeatureCache,
    same_objects,
    signals_of,
    size_of,
)
from strands_manga_memory.conversation.message_truncation import FullTextArchive, is_truncated
from strands_manga_memory.conversation.selection import (
    MessageOutcome,
    Selection,
    SelectionBudget,
    select,
    truncate_new_results,
)
from strands_manga_memory.conversation.summary_record import is_synthesized
from strands_manga_memory.conversation.token_counter import Calibration
from strands_manga_memory.deadline import is_on_event_loop
from strands_manga_memory.exceptions import logged_errors
from strands_manga_memory.messages import (
    content_fingerprint,
    for_model,
    id_of,
    is_tool_pair,
    is_turn_start,
    tool_result_ids,
    turns,
)
from strands_manga_memory.telemetry import TRIM, record_event

if TYPE_CHECKING:
    from strands.agent.agent import Agent

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_GIVEN_UP = 3
"""Divisor: the room for later turns is at most a third of the budget.
If the tool results of as many turns exceed the budget, it is up to two thirds.
"""

_LARGE = 50_000
"""Number of characters and bytes above which messages are counted and selected in a thread."""

_SHORT_REQUEST = 256
"""Most tokens of a user's message that stays whole after an overflow of the context window."""

REMEMBERED_OUTCOMES = 1_000
"""Least number of latest messages whose outcome (kept, truncated, evicted) is remembered."""


class Trimmer:
    """Keeps the history of one agent within its token budget, by evicting and truncating messages.

    A later trimming may restore evicted messages.

    Tokens are counted locally by a ``TokenCounter``. Numbers of tokens "as the model counts" are
    local counts, corrected by the token usage that the model reports.

    Attributes:
        max_tokens: Budget of the history, as the model counts.
        high_water_mark: Size above which the history is trimmed, as the model counts. Default
            ``max_tokens``.
        trim_every: Number of turns for which a trimming frees room in advance. 0: each trimming
            frees only the tokens that exceed the budget.
        max_turns: Largest number of turns. None for as many turns as fit.
        reserved: Tokens of ``max_tokens`` that are reserved for quotes of evicted messages.
        calibration: Ratio between the token counts of the model and of the local counter.
        archive: Full texts of truncated messages.
        tail: Latest messages in full: the history, and evicted messages that may return.
        features: Cache of the messages' measured properties, such as tokens and importance.
        recent_log: Function that returns the last messages of the session's log, at most the given
            number. Called at most once, and then set to None. Also None without a log.
    """

    def __init__(
        self,
        max_tokens: int,
        features: FeatureCache,
        *,
        trim_every: int,
        max_turns: int | None,
        log: Callable[[], Iterable[Message]] | None,
        recent_log: Callable[[int], Iterable[Message]] | None,
    ) -> None:
        self.max_tokens = self.high_water_mark = max_tokens
        self.features = features
        self.trim_every = trim_every
        self.max_turns = max_turns
        self.reserved = 0
        self.calibration = Calibration(features.counter)
        self.recent_log = recent_log
        self._agent: weakref.ref[Agent] | None = None
        self.tail = LogTail()
        self.archive = FullTextArchive(log, self.tail)
        self._outcomes: dict[str | None, MessageOutcome | None] = {}
        self._lock = threading.RLock()
        self._has_warned = False

    # --- The agent --------------------------------------------------------------------------------

    def attach(self, agent: Agent) -> None:
        """Set the agent whose history is trimmed. A trimmer serves one agent only.

        Raises:
            ValueError: The trimmer already belongs to an agent.
        """
        if self._agent is not None:
            call = "Agent(conversation_manager=ImportanceWeightedConversationManager(...))"
            raise ValueError(
                "this ImportanceWeightedConversationManager already serves an agent; give each its"
                f" own: {call}"
            )
        self._agent = weakref.ref(agent)

    @property
    def agent(self) -> Agent | None:
        """The agent whose history is trimmed. None if it is not set or was garbage-collected."""
        return self._agent() if self._agent is not None else None

    @property
    def messages(self) -> Sequence[Message]:
        """The agent's history. Empty without an agent."""
        agent = self.agent
        return [] if agent is None else agent.messages

    # --- The budget -------------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """Maximum tokens of the history: the budget without the tokens reserved for quotes."""
        return self.max_tokens - self.reserved

    @property
    def _full(self) -> int:
        """Size above which the history is trimmed, in local tokens."""
        full = max(self.limit, self.high_water_mark - self.reserved)
        return self.calibration.to_local_tokens(full)

    def reserve(self, tokens: int) -> int:
        """Reserve a part of the history's budget for quotes: ``tokens``, but at most half.

        The history never uses this part, even if a request has no quotes. Otherwise, quotes would
        change the history, and invalidate the provider's prompt cache.

        Returns:
            The number of tokens for quotes, at least 1.
        """
        self.reserved = min(tokens, self.max_tokens // 2)
        return max(1, self.reserved)

    def tokens(self, messages: Sequence[Message]) -> int:
        """Count the tokens of messages in a request, corrected by the model's own counts."""
        return self.calibration.to_model_tokens(self.features.total(messages))

    def headroom(self, messages: Sequence[Message], limit: int) -> int:
        """Return the tokens by which the user's latest message raises ``limit``, if it is large.

        A message is large if it exceeds half of ``limit``, a size of the history. Example: a
        message of 3,000 tokens raises a limit of 4,000 by 3,000 - 2,000 = 1,000 tokens. The limit
        rises at most to 3/4 of the model's context window. All numbers are tokens as the model
        counts.
        """
        tokens, _ = self._headroom(messages, self.calibration.to_local_tokens(limit))
        return self.calibration.to_model_tokens(tokens)

    def is_trim_due(self, messages: Sequence[Message], tokens: int) -> bool:
        """Return whether a history of ``tokens`` tokens must be trimmed now.

        Trimming is due if the history has too many tokens or turns. With ``trim_every``, it is also
        due at the start of a turn if the previous turn had tool results, and another turn of its
        size does not fit. The calls of the turn then need no trimming.
        """
        full = self._full
        if tokens > full and tokens > full + self._headroom(messages, full)[0]:
            return True
        if self.max_turns is not None and sum(map(is_turn_start, messages)) > self.max_turns:
            return True
        makes_room = self.trim_every and self.high_water_mark <= self.max_tokens
        if not makes_room or not is_turn_start(messages[-1]):
            return False
        before = [messages[at] for turn in turns(messages[:-1])[-1:] for at in turn]
        return any(map(tool_result_ids, before)) and tokens + self.features.total(before) > full

    def _has_new_results(self, messages: Sequence[Message]) -> bool:
        return self.trim_every > 0 and len(messages) > 1 and is_tool_pair(*messages[-2:])

    def _latest_turns(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return the messages of the latest ``trim_every`` turns, and those with tool results."""
        found = turns(messages)[-self.trim_every :]
        latest = list(messages[found[0].start :] if found else ())
        return latest, list(filter(tool_result_ids, latest))

    def _headroom(self, messages: Sequence[Message], budget: int) -> tuple[int, bool]:
        """Return :meth:`headroom` in local tokens, and whether it is enough for the message."""
        latest, agent = next(filter(is_turn_start, reversed(messages)), None), self.agent
        if latest is None or agent is None:
            return 0, False
        wanted = self.features.tokens(latest) - budget // 2
        if wanted <= 0:
            return 0, True
        window = window_of(agent.model) or UNKNOWN_WINDOW
        room = max(0, self.calibration.to_local_tokens(window * 3 // 4) - budget)
        return min(wanted, room), wanted <= room

    # --- Selections -------------------------------------------------------------------------------

    def select(self, messages: Sequence[Message], *, trim_to: int | None = None) -> Selection:
        """Select the messages that stay within the history's budget. The history does not change.

        ``trim_to`` is the target size of the history, in tokens as the model counts. Messages that
        always stay (such as pinned ones) and a large message of the user may exceed it. None means
        the whole budget.
        """
        budget = self.calibration.to_local_tokens(self.limit)
        headroom, is_enough = self._headroom(messages, budget)
        changes: dict[str, Any] = {"headroom": headroom, "keeps_request_whole": is_enough}
        if trim_to is not None and trim_to < self.limit:
            changes |= {
                "fill_to": self.calibration.to_local_tokens(trim_to) + headroom,
                "turns": self.max_turns and max(1, self.max_turns * trim_to // self.limit),
                "turns_until_next": self.trim_every,
            }
        return self._select(messages, budget + headroom, **changes)

    def fit_request(self, messages: list[Message]) -> tuple[list[Message], int]:
        """Trim a request's messages if they exceed the budget. The agent's history does not change.

        Returns:
            The messages, in a form that providers accept, and their number of tokens.
        """
        history = for_model(messages)
        tokens = self.features.total(history)
        with logged_errors(logger, "the request could not be trimmed, sending it whole"):
            if self.is_trim_due(messages, tokens):
                history = for_model(self.select(messages).messages)
                tokens = self.features.total(history)
        return history, tokens

    def _select(self, messages: Sequence[Message], tokens: int, **changes: Any) -> Selection:
        measured = self.features.measure_all(messages)
        style = self.features.statistics.service_style
        limits = {"turns": self.max_turns, "service_style": style, **changes}
        return select(messages, measured, SelectionBudget(tokens, **limits), self.features.tokens)

    # --- The work ---------------------------------------------------------------------------------

    async def run_off_loop(self, messages: Sequence[Message], work: Callable[[], _T]) -> _T:
        """Run ``work`` and return its result.

        A thread is used if trimming ``messages`` could block the event loop, see
        :meth:`would_block_loop`.
        """
        return await asyncio.to_thread(work) if self.would_block_loop(messages) else work()

    def would_block_loop(self, messages: Sequence[Message]) -> bool:
        """Return whether trimming in this thread would block a running event loop for long.

        That is the case if many messages must be counted or selected, or the session's log must be
        read.
        """
        if not is_on_event_loop():
            return False
        if self.features.uncounted_size(messages) > _LARGE:
            return True
        if self._has_new_results(messages) and size_of(messages[-1]) > _LARGE:
            return True
        needs_trim = True
        with suppress(Exception):  # the messages cannot be counted, which trimming will log
            needs_trim = self.is_trim_due(messages, self.features.total(messages))
        if not needs_trim or self.recent_log is not None:
            return needs_trim
        # The full form of a truncated message may be large.
        return max([size_of(messages), *map(size_of, self.tail)]) > _LARGE

    def reduce(self, agent: Agent, e: Exception | None) -> None:
        """Make the history smaller because the model's context window is full or almost full.

        After an overflow error, half of the tokens are evicted, otherwise a quarter. Less is
        evicted if messages that always stay (such as pinned messages) need more room. After an
        overflow error, even the user's message in the current turn may be truncated, unless it is
        short.

        Args:
            agent: The agent. Its list of messages is changed in place.
            e: The overflow error, or None.

        Raises:
            ContextWindowOverflowException: ``e`` is given, and over three quarters of the history
                must stay.
        """
        budget = self.calibration.to_local_tokens(self.limit)
        with self._lock:
            history = agent.messages[:]
            self.tail.update(history)
            before = self.features.total(history)
            if e is None:
                limit = budget + self._headroom(history, budget)[0]
                selection = self._select(history, limit, fill_to=min(limit, before * 3 // 4))
            else:
                latest = next(filter(is_turn_start, reversed(history)), None)
                is_short = latest is not None and self.features.tokens(latest) <= _SHORT_REQUEST
                selection = self._select(
                    history, min(budget, before // 2), keeps_request_whole=is_short
                )
                # Any clear progress is worth another request, as the real limit is unknown.
                if selection.tokens > max(selection.budget, before * 3 // 4) or not selection.kept:
                    raise ContextWindowOverflowException(
                        "the window is full and less than a quarter of the history can be evicted:"
                        f" of {before} tokens {selection.tokens} must stay"
                    ) from e
            self._commit(agent, history, selection, history)
        logger.debug(
            "tokens_before=<%d>, tokens_after=<%d> | reduced the history", before, selection.tokens
        )

    def explain(self, messages: Sequence[Message]) -> list[MessageOutcome]:
        """Return the outcome of each message: kept, truncated or evicted, and the reason.

        The list covers ``messages`` and recently evicted messages, in the order of the
        conversation.
        """
        outcomes = {
            at: "shortened" if is_truncated(message) else "kept"
            for at, message in enumerate(messages)
        }
        self._record_outcomes(messages, outcomes, self.select(messages).reasons)
        shown = {message.get("tracking_id") for message in messages}
        return [
            each
            for each in self._outcomes.values()
            if each and (each.outcome == "dropped" or each.tracking_id in shown)
        ]

    def _record_outcomes(
        self, messages: Sequence[Message], outcomes: Mapping[int, str], reasons: Mapping[int, str]
    ) -> None:
        for message in messages:
            self._outcomes.setdefault(message.get("tracking_id"), None)
        style, age = self.features.statistics.service_style, 0
        for at in reversed(range(len(messages))):
            message = messages[at]
            if at in outcomes:
                own = self.features.measure(message)
                self._outcomes[message.get("tracking_id")] = MessageOutcome(
                    message.get("tracking_id"),
                    message["role"],
                    own.act,
                    own.score,
                    own.tokens,
                    outcomes[at],
                    reasons[at],
                    signals_of(own, service_style=style, age=age),
                )
            age += is_turn_start(message)

    def score(self, message: Message) -> float:
        """Return the importance of a message, from 0 to 1."""
        return self.features.measure(message, self.messages).score

    def trim(self, agent: Agent) -> None:
        """Evict and truncate messages of an agent's history until it fits the budget.

        Errors are logged, not raised.
        """
        with (
            logged_errors(logger, "the history could not be trimmed, leaving it as it is"),
            self._lock,
        ):
            history = agent.messages[:]
            ensure_ids(history)
            if self._has_new_results(history):
                history = self._truncate_new_results(agent, history)
            if self.is_trim_due(history, self.features.total(history)):
                self._commit(agent, history, *self._select_from_tail(history))
            known = [*self.tail, *agent.messages]
            if len(self.features) > 2 * len(known) + 128:
                self.features.forget_all_but(known)
                ids = {*map(id_of, known), *list(self._outcomes)[-REMEMBERED_OUTCOMES:]}
                self._outcomes = {id_: self._outcomes[id_] for id_ in self._outcomes if id_ in ids}

    def _truncate_new_results(self, agent: Agent, history: list[Message]) -> list[Message]:
        """Truncate the results of the latest tool calls to a share of the room that is left.

        No request has contained these results yet. The rest of the room is for the turn's other
        calls, so that each of their requests begins with the previous request. If the share exceeds
        the room, the history does not change, because it is trimmed next.

        Returns:
            The agent's new history.
        """
        budget = self._full + self._headroom(history, self._full)[0]
        of_turns = turns(history)[-self.trim_every - 1 :]
        *earlier, calls = [
            sum(bool(tool_result_ids(history[at])) for at in turn) for turn in of_turns
        ]
        expected = math.ceil(sum(earlier) / max(1, len(earlier)))
        shares = max(2, expected - calls + 2)
        truncated = truncate_new_results(history, self.features.tokens, budget, shares)
        kept = dict(enumerate(history)) | truncated
        tokens = self.features.total([*kept.values()])
        if truncated and not self.is_trim_due([*kept.values()], tokens):
            self.tail.update(history)
            selection = Selection(kept, frozenset(truncated), {}, tokens, tokens)
            self._commit(agent, history, selection, history)
        return agent.messages[:]

    def _select_from_tail(self, history: list[Message]) -> tuple[Selection, list[Message]]:
        """Select the messages of a new history from the current history and evicted messages.

        Returns:
            The selection, and the messages from which it was made.
        """
        tail, total = self.tail, self.features.total
        tail.update(history)
        read, self.recent_log = self.recent_log, None
        if read is not None and not any(map(is_synthesized, tail)):
            # Without a summary, which would replace the evicted messages.
            with logged_errors(logger, "the log could not be read, no evicted message comes back"):
                tail.restore(list(read(tail.messages_to_read(self.max_tokens))))
        candidates = tail.candidates(history, self.max_tokens, self.features.tokens)
        trim_to = self.limit
        if self.trim_every:  # make room for as many turns, each as large as the latest ones
            latest, results = map(total, self._latest_turns(candidates))
            most = self.limit // _MOST_GIVEN_UP
            trim_to -= min(most, latest) + min(most, max(0, results - self.limit))
        return self.select(candidates, trim_to=trim_to), candidates

    def _commit(
        self, agent: Agent, history: list[Message], selection: Selection, candidates: list[Message]
    ) -> None:
        if selection.tokens > selection.budget and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "tokens=<%d>, budget=<%d> | pinned messages, reasoning and waiting tool calls"
                " exceed the budget",
                selection.tokens,
                selection.budget,
            )
        window, evicted = _apply_selection(history, selection, candidates)
        if same_objects(window, history):
            self.tail.record_selection(history, history)
            return
        # Messages appended since the selection stay. No other change is allowed.
        if not same_objects(agent.messages[: len(history)], history):
            logger.debug("the history was replaced meanwhile | leaving it as it is")
            return
        tokens_before = self.features.total(history)
        agent.messages[: len(history)] = window
        self.tail.record_selection(history, window)
        if selection.truncated:
            self.archive.add_tool(agent, window)
            logger.info(
                "messages=<%d>, tokens_before=<%d>, tokens_after=<%d>, budget=<%d> | truncated"
                " messages",
                len(selection.truncated),
                tokens_before,
                selection.tokens,
                selection.budget,
            )
        counts = {
            "messages": len(evicted),
            "shortened": len(selection.truncated),
            "tokens": max(0, tokens_before - selection.tokens),
        }
        record_event(TRIM, counts=counts)
        self._record_outcomes(candidates, dict.fromkeys(evicted, "dropped"), selection.reasons)


def _apply_selection(
    history: Sequence[Message], selection: Selection, candidates: Sequence[Message]
) -> tuple[list[Message], list[int]]:
    """Return the new history, and the positions in ``candidates`` of newly evicted messages."""
    # Messages may have equal ids, so a copy must not stand for another.
    key: Callable[[Message], Any] = id if same_objects(candidates, history) else id_of
    shown = {key(message): message for message in history}
    window: list[Message] = []
    evicted: list[int] = []
    for at, candidate in enumerate(candidates):
        before, after = shown.get(key(candidate)), selection.kept.get(at)
        if after is not None:
            if before is not None and at in selection.truncated:
                is_same = content_fingerprint(after) == content_fingerprint(before)
                after = before if is_same else after
            window.append(after)
        elif before is not None:
            evicted.append(at)
    return window, evicted
