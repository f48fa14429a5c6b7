"""Sources of the texts about a user in an agent's last request, and removal of such texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from strands import Agent

from strands_manga_memory import memory
from strands_manga_memory.arguments import check_instance
from strands_manga_memory.html_tables import ReportList
from strands_manga_memory.language.open_questions import complete_answer
from strands_manga_memory.language.preferences import extract_preferences
from strands_manga_memory.memory.records import MemoryType, question_id
from strands_manga_memory.messages.injection import escape_line, message_text, preceding_texts
from strands_manga_memory.scope import ConversationScope

SourceKind = Literal["preference", "memory", "summary", "quote", "entity", "slot"]
_KINDS: dict[str, SourceKind] = {
    MemoryType.PREFERENCE: "preference",
    **dict.fromkeys((MemoryType.SUMMARY, MemoryType.WEEK, MemoryType.MONTH), "summary"),
}

if TYPE_CHECKING:
    from strands_manga_memory import conversation, state


@dataclass(frozen=True, kw_only=True)
class Source:
    """Text about the user or the task in a request, with the origin of the text.

    Attributes:
        kind: ``preference``, ``memory``, ``summary``, ``quote`` (of an evicted message), ``entity``
            or ``slot`` (task value).
        text: The stored text.
        scope: Conversation whose request contained the text.
        session_id: Session that the text came from; None if unknown.
        message_id: ``tracking_id`` of the source message, or of the last message if the text came
            from several messages; None if unknown.
        memory_id: Id of the stored memory; None if the text is not a stored memory.
        at: Time of the source message, or of the last change of the stored memory, in seconds since
            1970; None if unknown.
    """

    kind: SourceKind
    text: str
    scope: ConversationScope
    session_id: str | None = None
    message_id: str | None = None
    memory_id: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class RetractionReport:
    """Result of the removal of a text about the user: counts of changed memories and agents.

    Attributes:
        memories: Number of stored memories that were deleted or changed.
        live_agents: Number of agents of this process that no longer show the text.
    """

    memories: int
    live_agents: int


def explain(parts: Mapping[Any, ConversationScope], agent: Agent) -> list[Source]:
    """Return the texts about the user in an agent's last request: see ``MangaMemory.explain``.

    Args:
        parts: Plugins and conversation managers of the agents of a ``MangaMemory``, each with the
            scope (user and session) of the agent.
        agent: Agent whose last request is explained.
    """
    from strands_manga_memory import conversation, state

    found: list[Source] = ReportList()
    users = (part for part in parts if isinstance(part, memory.UserContext))
    user = next((part for part in users if part.agent is agent), None)
    coordinator = state.coordinator_of(agent)
    scope = parts.get(user) or parts.get(coordinator)
    if scope is None:
        return found
    source = partial(Source, scope=scope)
    if user is not None:
        found += _memory_sources(user, source)
    source = partial(source, session_id=scope.session_id)
    if coordinator is not None:
        found += _state_sources(coordinator, source)
    recalls = [part for part in parts if isinstance(part, conversation.HistoryRecall)]
    if own := [part for part in recalls if parts[part] == scope]:
        found += _quote_sources(own[-1], agent, source)
    return found


def _memory_sources(user: memory.UserContext, source: Callable[..., Source]) -> Iterator[Source]:
    from strands_manga_memory.memory.memory_reader import shown_texts

    shown, listed = user.shown_text, set()
    for slot, slot_state in user.stated.items():
        by = slot_state.statement
        text = slot_state.value if slot.startswith("~") else f"{slot}: {slot_state.value}"
        listed.add(text)
        yield source(
            kind="preference",
            text=text,
            session_id=by.session_id,
            message_id=by.message_id,
            at=by.at,
        )
    records = user.known_records()
    # The questions of a summary are listed with the summary.
    listed_ids = {
        question_id(each.memory_id) for each in records if each.type == MemoryType.SUMMARY
    }
    for record in records:
        texts = [text for text in shown_texts(record) if text in shown]
        if not texts or record.content in listed or record.memory_id in listed_ids:
            continue
        sources = record.metadata.get("sources")
        said = [each for each in sources.values() if each] if isinstance(sources, dict) else []
        yield source(
            kind=_KINDS.get(record.type, "memory"),
            text=record.content or texts[0].removeprefix("- "),
            session_id=record.metadata.get("session_id"),
            message_id=said[-1] if said else None,
            memory_id=record.memory_id,
            at=record.updated_at,
        )


def _state_sources(
    coordinator: state.StateCoordinator, source: Callable[..., Source]
) -> Iterator[Source]:
    shown = coordinator.shown_text
    for entity in coordinator.entities.active():
        if escape_line(entity.display_text, 60) in shown:
            text = f"{entity.type}: {entity.display_text}"
            yield source(kind="entity", text=text, message_id=entity.message or None)
    for slot in coordinator.dialogue.slots.values():
        if slot.value is not None and escape_line(slot.value) in shown:
            text = f"{slot.name}: {slot.value}"
            yield source(kind="slot", text=text, message_id=slot.source or None)


def _quote_sources(
    recall: conversation.HistoryRecall, agent: Agent, source: Callable[..., Source]
) -> Iterator[Source]:
    from strands_manga_memory.memory.memory_search import user_query

    # Requests keep no list of the quoted messages, so these are searched for again.
    question = user_query(agent.messages)
    quoted = recall.quote(question, agent.messages) if question else ""
    for hit in recall.search(question) if question else ():
        lines = [escape_line(line)[:60] for line in hit.message.text.splitlines() if line.strip()]
        if any(line in quoted for line in lines):
            yield source(kind="quote", text=hit.message.text, message_id=hit.message.id)


def retract(
    opened: Any, parts: Mapping[Any, ConversationScope], source: Source
) -> RetractionReport:
    """Remove a text about the user from memories and live agents: see ``MangaMemory.retract``.

    Args:
        opened: The ``MangaMemory`` with the stores.
        parts: Plugins and conversation managers of the agents of ``opened``, each with the scope
            (user and session) of the agent.
        source: Text to remove, with its origin.
    """
    from strands_manga_memory import conversation, state

    scope = check_instance("source", source, Source, "a Source from explain(agent)").scope
    live = [part for part, of in parts.items() if of.storage_user_id == scope.storage_user_id]
    ids, changed = {source.message_id, source.memory_id} - {None}, []
    for part in live:  # before the removal, which changes the texts that agents show
        if isinstance(part, memory.UserContext):
            shown = _memory_sources(part, partial(Source, scope=scope))
            if not ids.isdisjoint(
                id_ for each in shown for id_ in (each.message_id, each.memory_id)
            ):
                changed.append(part.agent)
    memories, at = 0, 0.0
    if opened.memories is not None:
        store = opened.user(scope.user_id, tenant=scope.tenant)
        # Also on a machine whose clock is behind the one that stored the preference.
        at = max(store.partition.clock(), source.at or 0.0)
        memories = _retract_stored(store, source, at)
    if message_id := source.message_id:
        for part in live:
            if isinstance(part, memory.UserContext):
                part.discard_preferences(message_id, at=at)
            elif isinstance(part, conversation.HistoryRecall):
                part.forget(message_id)
            elif isinstance(part, state.StateCoordinator) and part.retract(message_id):
                changed.append(part.store.agent)
        of_text = replace(scope, session_id=source.session_id or scope.session_id)
        stored = state.StateCoordinator(scope=of_text, hot=opened.hot, codec=opened.codec)
        stored.retract(message_id)
    return RetractionReport(memories, len({id(agent) for agent in changed if agent is not None}))


def rewind(opened: Any, scope: ConversationScope, at_turn: int) -> None:
    """Remove a conversation's turns after ``at_turn``, and all values that came from these turns.

    The values are preferences, entities and slot values. ``opened`` is the ``MangaMemory``.

    Raises:
        StoreUnavailableError: The memory table does not answer. Turns removed before the error stay
            removed; their preferences are deleted in the background.
    """
    from strands_manga_memory import state

    store = None
    if opened.memories is not None:
        store = opened.user(scope.user_id, tenant=scope.tenant)
    session = opened.session(scope)
    records = list(session.records())
    before = preceding_texts(each["message"] for each in records)
    removed = {
        id_: each["message"]
        for each in records
        if each["turn"] > at_turn and (id_ := each["message"].get("tracking_id"))
    }
    statements = store.preference_log.read().statements if store else ()
    known = {each.message_id for each in statements}
    session.rewind(at_turn)
    state.StateCoordinator(scope=scope, hot=opened.hot, codec=opened.codec).retract(*removed)
    if store is None:
        return
    with ExitStack() as retractions:  # calls each, even if one of them raises an error
        for number, id_ in enumerate(each for each in before if each in removed):
            text = complete_answer(message_text(removed[id_]), before[id_])
            # The first retraction also deletes the summary of the session.
            if not number or id_ in known or extract_preferences([text]):
                retractions.callback(store.retract, id_, session_id=scope.session_id)


def _retract_stored(store: memory.UserMemoryStore, source: Source, at: float) -> int:
    count, id_ = 0, source.memory_id
    if source.message_id is not None:
        count = store.retract(source.message_id, session_id=source.session_id, at=at)
        id_ = None if source.kind == "preference" else id_
    return count if id_ is None else count + store.forget(id_)
