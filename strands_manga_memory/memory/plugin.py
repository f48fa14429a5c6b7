"""Plugin that shows an agent the memories of its user and extracts preferences from messages."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    HookOrder,
    MessageAddedEvent,
)
from strands.memory import InjectionFormatContext, InjectionQueryContext
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.models import Model
from strands.plugins import Plugin
from strands.types.content import Message

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.exceptions import (
    KeyMissingError,
    MangaMemoryError,
    StoreError,
    logged_errors,
)
from strands_manga_memory.language.preference_slots import Preference, split_values
from strands_manga_memory.memory.extraction import extract_by_model, extract_by_rules
from strands_manga_memory.memory.hot_profile import PATIENCE
from strands_manga_memory.memory.memory_reader import join_first_lines
from strands_manga_memory.memory.memory_search import user_query
from strands_manga_memory.memory.profile_cache import ProfileCache
from strands_manga_memory.memory.records import ENTRY_CHARACTERS, MAX_TOKENS, MemoryRecord, day_of
from strands_manga_memory.memory.statements import Removal, SlotState, message_digest
from strands_manga_memory.memory.store import UserMemoryStore
from strands_manga_memory.messages import is_turn_start
from strands_manga_memory.messages.injection import (
    escape_line,
    opening_id,
    preceding_texts,
    render_section,
    strip_placeholders,
    with_section,
    with_system_text,
)
from strands_manga_memory.messages.model_calls import error_level
from strands_manga_memory.messages.texts import MAX_EXCERPT, estimate_tokens, head_and_tail
from strands_manga_memory.telemetry import count_missed_deadline, watch_deadline

logger = logging.getLogger(__name__)

_STATED = "Preferences stated lately:"
_STATED_SINCE = "Preferences stated since, which replace earlier ones:"
_RESULTS_TITLE = "From earlier sessions, quoted:"
_COMPARED_CHARACTERS = 80
_MAX_STATED = 10

Learn = Literal["rules", "model", "nothing"]
"""Extraction of preferences: by rules, by rules and a model (``model``), or not at all."""


@with_repr("_store", "_session_id", "_learn")
class UserContext(Plugin):
    """Plugin that adds the user's memories to every model call.

    The preferences known at session start become part of the system prompt, which then rarely
    changes during the session. Summaries of earlier sessions and recently stated preferences are
    inserted before the user's text, in the message that began the turn. The recent preferences
    override those in the system prompt. The stored history of the conversation does not contain the
    inserted texts.

    Args:
        store: Store of the user's memories, with a hot tier (a fast shared store, such as Redis).
        session_id: Id of the session. It is stored with the extracted preferences.
        learn: Extraction of preferences from the user's messages after each turn. ``rules`` knows
            English and Japanese. ``model`` also asks the agent's ``aux_model`` (a second model for
            background work), and drops values with words that the message does not contain.
            ``nothing`` disables the extraction after turns and after the end of the session.
            Default: ``model`` if the agent was given an ``aux_model``, else ``rules``.
        reads_revision: Whether each model call also looks for changes in the memory table. This is
            needed if processes with another hot tier change the table. Default False.

    Raises:
        ValueError: ``learn`` is unknown, or the store has no hot tier.
    """

    name = "strands-manga-memory-user-context"

    @checked
    def __init__(
        self,
        store: UserMemoryStore,
        *,
        session_id: str | None = None,
        learn: Learn | None = None,
        reads_revision: bool = False,
    ) -> None:
        super().__init__()
        self._store = store
        self._cache = ProfileCache(
            store, on_removal=self._drop_results, reads_revision=reads_revision
        )
        self._session_id = session_id
        self._learn = learn
        self._agent: weakref.ref[Agent] | None = None
        self._pending: list[tuple[Message, float]] = []
        self._read: dict[str, tuple[str, ...]] = {}
        self._questions: Mapping[str, str] = {}
        self._results: tuple[str, list[str]] = ("", [])  # id of the turn, and its search results
        self._writer = self._cache.writer
        self._clock = store.partition.clock
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Sequence[str], float]] = {}  # messages to ask the model for

    def init_agent(self, agent: Agent) -> None:
        """Read the text about the user, and register hooks and middleware.

        Raises:
            KeyMissingError: The text is encrypted, and its key is missing or destroyed.
        """
        self._agent = weakref.ref(agent)
        try:
            with watch_deadline("memories", PATIENCE):
                self._cache.load()
        except KeyMissingError:
            raise
        except StoreError as error:
            logger.warning(
                "error=<%s> | the user's context could not be read, the agent starts without it",
                type(error).__name__,
            )
        if self._learn == "nothing":
            agent.add_hook(_exclude_from_learning, MessageAddedEvent, order=HookOrder.SDK_FIRST)
        else:
            agent.add_hook(self._restored, AgentInitializedEvent, order=HookOrder.SDK_LAST)
            agent.add_hook(self._message_added, MessageAddedEvent)
            # Before a turn, it finds messages that the application edited between turns.
            agent.add_hook(self._process_messages, BeforeInvocationEvent)
            agent.add_hook(self._process_messages, AfterInvocationEvent)
        # before a MemoryManager searches
        agent.add_middleware(InvokeModelStage.Input, self._refresh)
        # After the middleware of a MemoryManager, which an agent registers after its plugins: see
        # collect_results.
        agent.add_hook(
            lambda event: event.agent.add_middleware(InvokeModelStage.Input, self._with_memory),
            AgentInitializedEvent,
        )

    def _restored(self, event: AgentInitializedEvent[Agent]) -> None:
        self._read = _texts_of(event.agent)
        self._questions = preceding_texts(event.agent.messages)

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        if is_turn_start(event.message):
            # The text is read after the turn, because a guardrail may redact it, and the question
            # before the turn, because a long turn may evict it.
            self._pending.append((event.message, self._clock()))
            self._questions = preceding_texts(event.agent.messages)

    def _process_messages(self, event: BeforeInvocationEvent | AfterInvocationEvent) -> None:
        agent, added, self._pending = event.agent, self._pending, []
        read, self._read = self._read, _texts_of(agent)
        texts, times = self._read, {message.get("tracking_id") or "": at for message, at in added}
        retracted_ids = [
            id_
            for id_, current in texts.items()
            if read.get(id_, current) != current
            if all(strip_placeholders(text) == text for text in current)  # not shortened
        ]
        texts_by_id = {id_: texts[id_] for id_ in retracted_ids}
        # A message with an unknown id replaces an edited message. Without one, a missing message
        # was only trimmed.
        is_replaced = any(
            is_turn_start(one) and one.get("tracking_id") not in times.keys() | read.keys()
            for one in agent.messages
        )
        for message, _ in added:
            id_ = message.get("tracking_id") or ""
            if id_ in texts or not is_replaced:
                texts_by_id[id_] = texts.get(id_, _texts(message))
            else:
                retracted_ids.append(id_)
        if not (texts_by_id or retracted_ids):
            return
        # Without an aux_model, an agent's aux_model is its model, and a default must not call that
        # one twice a turn.
        is_asked = self._learn == "model" or (
            self._learn is None and agent.aux_model is not agent.model
        )
        model = agent.aux_model if is_asked else None
        known, questions = {**texts, **texts_by_id}, self._questions

        def update() -> None:
            for id_ in retracted_ids:
                # An edited message states its new text after the removal.
                times[id_] = math.nextafter(self._retract(id_), math.inf)
            ids = list(known)
            for at, id_ in enumerate(ids):
                if id_ in texts_by_id:
                    with logged_errors(logger, "failed to store preferences"):
                        latest = {each: known[each] for each in ids[max(0, at - 2) : at + 1]}
                        stated = extract_by_rules(latest, questions)
                        self._store_preferences(id_, stated, known[id_], times[id_])
            if model is not None:
                with self._lock:
                    self._waiting |= {id_: (own, times[id_]) for id_, own in texts_by_id.items()}
                self._writer.submit(("learn", id(self)), partial(self._ask_model, model), slow=True)

        self._writer.submit(self._cache.queue_key, update)

    def _retract(self, message_id: str) -> float:
        at = self._clock()
        with logged_errors(logger, "failed to retract the preferences of a message"):
            self.retract(message_id, at=at)
        return at

    def _ask_model(self, model: Model) -> None:
        with self._lock:
            messages, self._waiting = self._waiting, {}
        try:
            found = extract_by_model(model, messages)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; the rules have extracted already
            text = "error=<%s>, model=<%s> | the model failed to extract preferences, using rules"
            kinds = type(error).__name__, type(model).__name__
            logger.log(error_level(model, error), text, *kinds)
            return

        def store() -> None:
            for id_, stated in found.items():
                self._store_preferences(id_, stated, *messages[id_])

        self._writer.submit(self._cache.queue_key, store)

    def _store_preferences(
        self,
        message_id: str,
        preferences: Sequence[Preference],
        texts: Sequence[str],
        at: float,
    ) -> None:
        values = {part for each in preferences for part in split_values(each.value)}
        # Longer than the read excerpt, so that no personal data of the excerpt is cut.
        text = "\n".join(head_and_tail(each, 2 * MAX_EXCERPT) for each in texts)
        parts = self._store.pii.parts_of_data(values, text)
        whole = [
            each
            for each in preferences
            if each.slot == "birthday" or parts.isdisjoint(split_values(each.value))
        ]
        self._cache.add_statements(
            whole, message_id=message_id or None, session_id=self._session_id, at=at
        )

    def redacted(self, message_id: str) -> None:
        """Delete the preferences that a redacted message stated, in the background.

        Pass this method to ``TieredSessionManager.when_redacted``.
        """
        if any(message.get("tracking_id") == message_id for message, _ in self._pending):
            return  # its text is read after the turn
        self._writer.submit(self._cache.queue_key, lambda: self._retract(message_id))

    def retract(self, message_id: str, *, at: float | None = None) -> None:
        """Delete the preferences that a message stated, and the summaries of its session.

        They are deleted in the table and in the hot tier before the call returns. A service to
        which preferences are sent is notified. If the message is edited in the agent's history, no
        call is needed: the plugin notices that at the next turn.

        Args:
            message_id: ``tracking_id`` of the message.
            at: Time of the deletion, in seconds since 1970. Default: now.

        Raises:
            StoreUnavailableError: The table is unavailable.
        """
        at = self._clock() if at is None else at
        self.discard_preferences(message_id, at=at)
        self._store.retract(message_id, session_id=self._session_id, at=at)

    def discard_preferences(self, message_id: str, *, at: float) -> None:
        """Remove a message's preferences from the copy that this agent uses, not from the stores.

        ``at`` is the time of the removal, in seconds since 1970. Preferences that a later edit of
        the message states are kept.
        """
        with self._lock:
            self._waiting.pop(message_id, None)
        self._cache.remove(Removal(at, message=message_digest(message_id)))
        self._store.reader.drop_snapshot()
        self._drop_results()

    @property
    def agent(self) -> Agent | None:
        """Agent that uses the plugin. None before it is built, and after its garbage collection."""
        return None if self._agent is None else self._agent()

    @property
    def stated(self) -> dict[str, SlotState]:
        """Recent preferences that the system prompt lacks, keyed by subject such as ``genre``."""
        shown = self._cache.context.preferences.splitlines()
        return {
            slot: slot_state
            for slot, slot_state in self._cache.stated.items()
            if _line(slot, slot_state) not in shown
        }

    @property
    def shown_text(self) -> str:
        """Text about the user that the last request to the model contained."""
        return "\n".join([self._shown_without_results(), *self._results[1]])

    def _shown_without_results(self) -> str:
        return "\n".join([self._cache.context.preferences, *self._history()])

    def known_records(self) -> list[MemoryRecord]:
        """Return the memories of the user that this process has read or created.

        Most are read at session start.
        """
        return self._store.reader.known_records()

    def _drop_results(self) -> None:
        self._results = ("", [])

    async def _refresh(self, context: InvokeModelContext) -> InvokeModelContext:
        def refresh() -> None:
            try:
                self._cache.refresh()
            except MangaMemoryError as error:
                logger.debug("error=<%s> | overrides could not be refreshed", type(error).__name__)

        # In the queue after this turn's own extractions, so that the turn's model calls include
        # them.
        refreshed = asyncio.wrap_future(self._writer.submit(self._cache.queue_key, refresh))
        patience = self._writer.hot_health.wait_limit(PATIENCE)
        done, _ = await asyncio.wait([refreshed], timeout=patience)
        if not done:
            count_missed_deadline("hot")
        return context

    async def _with_memory(self, context: InvokeModelContext) -> InvokeModelContext:
        if self._results[0] != opening_id(context.agent.messages):  # of an earlier turn
            self._drop_results()
        lines = [*self._history(), *self._results[1]]
        if block := self._cache.context.preferences:
            context = with_system_text(context, f"<user_preferences>\n{block}\n</user_preferences>")
        return with_section(context, render_section("user_memory", lines)) if lines else context

    def query(self, context: InjectionQueryContext, **_: Any) -> str | None:
        """Return the user's text of the current turn as a search query; None if it is small talk.

        Texts that plugins added to the request are not included. Pass this method as
        ``MemoryManager(injection={"query": ...})``.
        """
        return user_query(context.messages if self.agent is None else self.agent.messages)

    def collect_results(self, context: InjectionFormatContext, **_: Any) -> str:
        """Keep the search results of a ``MemoryManager``, to add them to all requests of this turn.

        Pass this method as ``MemoryManager(injection={"format": ...})``. It returns an empty text,
        because the manager would add a text only to the first request of a turn.

        Each request gets a title and one line for each result. A line begins with the date of the
        memory's session, if known. Results that the request already contains, and those beyond the
        token budget, are left out.
        """
        shown = self._shown_without_results()
        remaining = MAX_TOKENS - estimate_tokens(shown) - estimate_tokens(_RESULTS_TITLE) - 20
        lines: list[str] = []
        for entry in context.entries:
            if escape_line(entry.content, _COMPARED_CHARACTERS).removesuffix("…") in shown:
                continue  # the request contains the same summary or preference already
            day = day_of((entry.metadata or {}).get("ended_at"))
            line = f"- {day and f'{day}: '}{escape_line(entry.content, ENTRY_CHARACTERS)}"
            remaining -= estimate_tokens(line) + 1
            if remaining < 0:
                break
            lines.append(line)
        turn = "" if self.agent is None else opening_id(self.agent.messages)
        self._results = turn, [_RESULTS_TITLE, *lines] if lines else []
        return ""

    def _history(self) -> list[str]:
        cached = self._cache.context
        remaining = (
            MAX_TOKENS - estimate_tokens(cached.preferences) - estimate_tokens(cached.history)
        )
        title = _STATED_SINCE if cached.preferences else _STATED
        latest = [*reversed(self.stated.items())][:_MAX_STATED]
        since = join_first_lines([title, *(_line(*each) for each in latest)], remaining)
        return [*cached.history.splitlines(), *since.splitlines()]


def _exclude_from_learning(event: MessageAddedEvent[Agent]) -> None:
    # No preferences are extracted from the message, even after the session ends.
    event.message.setdefault("metadata", {}).setdefault("custom", {})["learn"] = "nothing"


def _texts_of(agent: Agent) -> dict[str, tuple[str, ...]]:
    return {
        id_: _texts(one)
        for one in agent.messages
        if is_turn_start(one) and (id_ := one.get("tracking_id"))
    }


def _texts(message: Message) -> tuple[str, ...]:
    return tuple(block["text"] for block in message["content"] if "text" in block)


def _line(slot: str, state: SlotState) -> str:
    name = "" if slot.startswith("~") else f"{escape_line(slot)}: "
    return f"- {name}{escape_line(state.value)}"
