"""Access of one process to the conversation of an agent, or to the state of a Graph or Swarm."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from strands import Agent
from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreUnavailableError
from strands_manga_memory.lifecycle import renew_in_child
from strands_manga_memory.messages import is_message, starts_turn
from strands_manga_memory.session.agent_snapshot import (
    INTERRUPTS,
    META,
    ORCHESTRATOR,
    STATE,
    entries_of,
    has_identity,
    is_interrupted,
    messages_of,
    serialize_states,
    slots_of,
    snapshot_of,
)
from strands_manga_memory.session.conversation_saver import ConversationSaver
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage, Tier
from strands_manga_memory.session.protocol.record import (
    CONTINUES,
    Record,
    TurnKey,
)
from strands_manga_memory.session.session_log import LogEntry, LogPosition, log_entries
from strands_manga_memory.session.tiers import ConversationKey, Tiers
from strands_manga_memory.stores.codec import dump, load, parsing
from strands_manga_memory.stores.writer import cause_of
from strands_manga_memory.telemetry import RESTORE, measured, watch_deadline

logger = logging.getLogger(__name__)

_HOT_SECONDS = 1.0  # longest wait for the hot tier when a conversation is opened


class SessionStats(TypedDict):
    """Statistics of an agent's conversation: its size, unsaved messages, and state of the stores.

    The log has every message of the conversation. The history (``agent.messages``) lacks the
    messages that a conversation manager has removed.

    Attributes:
        turns: Number of turns so far. A turn is one request of the user.
        messages: Number of messages in the log (all messages so far).
        window_messages: Number of messages in the history.
        left_messages: Number of messages that the history lacks, or has only in an edited form.
        unsaved_messages: Number of messages that no store has confirmed.
        dropped_messages: Number of unsaved messages discarded because the conversation was deleted.
        possible_loss: Whether the last turns may be lost. True if this process found the hot tier
            (which gets turns first) empty or down, unless ``close`` or a sweeper had written all
            turns to the durable tier.
        hot: State of the hot tier (such as Redis): ``up``, ``down`` or ``none`` (not in use).
        hot_error: Cause of the hot tier's outage, possibly with a remedy; empty while it is up.
        durable: State of the durable tier (such as DynamoDB): ``up``, ``down`` or ``none``.
        durable_error: Cause of the durable tier's outage; empty while it is up.
        tokens: Tokens of the history; None if the conversation manager does not count them.
        budget: Token budget of the history; None if the conversation manager has none.
        left: Remaining tokens of the budget; None without a budget.
        age: Seconds since the conversation began.
        oldest_turn_age: Age in seconds of the first unedited message in the history; None without
            such a message.
    """

    turns: int
    messages: int
    window_messages: int
    left_messages: int
    unsaved_messages: int
    dropped_messages: int
    possible_loss: bool
    hot: str
    hot_error: str
    durable: str
    durable_error: str
    tokens: int | None
    budget: int | None
    left: int | None
    age: float
    oldest_turn_age: float | None


class AgentConversation:
    """Access of this process to an agent's conversation, or to the state of a Graph or Swarm.

    The object reads the conversation from the stores. Its ``saver`` writes changes to them.

    Args:
        ids: Unescaped ids ``session``, ``user``, ``tenant``, ``member`` (agent, Graph or Swarm).

    Attributes:
        keeps_window: Whether ``agent.messages`` is stored as the agent's history. False for a Graph
            or Swarm, and for a model that keeps the messages itself.
        local: This process's copy of the conversation, with its unsaved changes.
        lock: Lock that guards ``local``. It is never held during I/O.
        possible_loss: Whether turns may have been lost before the conversation was opened.
        in_use: Object through which this process's agent uses the conversation; None without such
            an agent.
    """

    def __init__(
        self,
        conversation_key: ConversationKey,
        tiers: Tiers,
        *,
        ids: Mapping[str, Any],
    ) -> None:
        self.key, self.tiers, self._ids = conversation_key, tiers, ids
        self.keeps_window = conversation_key.member.startswith("A:")
        self.renew_after_fork()
        renew_in_child(self)

    def renew_after_fork(self) -> None:
        """Discard this copy of the conversation in a forked child process, and begin an empty copy.

        The parent process saves the changes that were unsaved at the fork.
        """
        self.storage = ConversationStorage(self.key, self.tiers, ids=self._ids)
        self.local = self.storage.local
        self.local.check_merge = _check_merge
        self.lock: threading.RLock = self.local.lock
        self.saver = ConversationSaver(self.key, self.tiers, self.storage)
        self.possible_loss = False
        self._last: Mapping[str, Any] | None = None
        self._given: dict[str, bytes] = {}
        self._captured: tuple[dict[str, bytes], bytes | None] = {}, None
        self._agent_meta: dict[str, Any] = {}
        self.in_use: AgentConversation | None = None

    # Opening

    def open(self, *, inspect: bool = False) -> list[Message] | None:
        """Read the conversation from the stores, and return the agent's history.

        Args:
            inspect: True to change nothing: no write, and no restart of the time to live.

        Returns:
            The history. None if the conversation is new, was deleted or has expired.

        Raises:
            StoreUnavailableError: The stored conversation cannot be read.
            CorruptRecordError: A stored record is damaged, or has the ids of another conversation.
        """
        if inspect:
            return self._open(inspect=True)
        with measured(RESTORE) as noted:
            messages = self._open(inspect=False)
            noted.attributes["outcome"] = "new" if messages is None else "restored"
        return messages

    def _open(self, *, inspect: bool) -> list[Message] | None:
        storage, local = self.storage, self.local
        others = self.saver.others_unsaved()  # before the reads, which may miss their saves
        start = partial(self.tiers.writer.submit, (self.key, "hot"))  # both tiers at once
        error = storage.load(touch=not inspect, read=self._read_tier, start=start)
        if error is not None:
            logger.warning("error=<%s> | the other tier is used", cause_of(error))
        if storage.hot is not None:
            head = local.tier_records["durable"]
            is_current = not head.is_empty and head.incarnation == local.base.incarnation
            lacks_hot = storage.hot.record.is_empty and not head.is_closed
            self.possible_loss = lacks_hot and (is_current or not storage.hot.is_known)
        if not local.base.is_empty:
            stored, record = local.base.ids, self.key.name
            if stored and any(stored.get(name) != id_ for name, id_ in local.ids.items()):
                raise CorruptRecordError(
                    f"record={record!r} belongs to other ids than those asked for", record=record
                )
            self.end_if_expired(inspect=inspect)
        for other in others:
            local.merge_shared(other)
        if local.base.is_empty:  # otherwise another writer may have begun the next incarnation
            local.is_reset = False
            return None
        storage.complete()
        with self.lock:
            return messages_of(local.adopt_window(), local.message)

    def _read_tier(self, tier: Tier, read: Callable[[], Record]) -> Record:
        with watch_deadline(tier.name, tier.deadline):
            if tier is self.storage.hot:
                return tier.health.call_in_thread(read, _HOT_SECONDS)
            try:
                return read()
            except StoreUnavailableError as error:
                tier.health.record_failure(error)
                raise

    def end_if_expired(self, *, inspect: bool = False) -> None:
        """End the conversation if its session has expired.

        With ``inspect``, the conversation ends only in the memory of this process. Otherwise, it
        ends in the stores, too.
        """
        storage, last_used = self.storage, self.local.base.last_used
        hot = None if storage.hot is None else storage.hot.stored
        if hot is not None and not hot.record.is_empty and (hot.expires_in or 0.0) > 0:
            return
        if storage.durable is not None and last_used + self.tiers.ttl.session > self.tiers.clock():
            return
        if inspect:
            with self.lock:
                self.local.reset_to(self.local.next_tombstone(0, Record()))
        else:
            with suppress(StoreUnavailableError):
                storage.expire(unused_since=last_used)

    # The agent's side

    def add(
        self,
        message: Mapping[str, Any],
        *,
        at: float | None = None,
        history: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Add a message to the conversation, or replace its shorter version.

        A user's request begins a new turn. Any other message is added to the open turn or, without
        one, begins a turn that has the number of the previous turn.

        A model that continues an answer sends a longer message with the same ``tracking_id``. This
        message replaces the shorter one if ``history``, the agent's messages, has only the longer.
        ``at`` is the time of the message in seconds since 1970 (default: now).
        """
        with self.lock:
            local, identity = self.local, message.get("tracking_id")
            view = local.view if history else ()
            key = view[-1].key if view else None  # perhaps of another process's turn
            versions = [
                slot.number
                for slot in view
                if slot.key == key and has_identity(local.message(slot), identity)
            ]
            count = sum(one.get("tracking_id") == identity for one in history)
            if key is not None and 0 < count <= len(versions):
                local.revise(key, versions[-1], dump(message))
                return
            begins = starts_turn(message, self._last)  # type: ignore[arg-type]
            if begins and local.open_key:
                self.end_turn()
                local.begin_turn()
            goes_on = not begins and local.base.message_count and not local.open_key
            local.append(dump(message), at=at, about={CONTINUES: True} if goes_on else None)
            self._last = message

    def end_turn(self) -> None:
        """End the present turn of the conversation. Store the user's intent, if known, with it."""
        with self.lock:
            intent = self.local.states.get(f"{META}active_intent")
            self.local.end_turn(**({"intent": intent} if intent else {}))

    def redact(self, message: Mapping[str, Any], log: Iterable[LogEntry] = ()) -> bool:
        """Replace a message of the conversation by its redacted version, ``message``.

        The message is found by its ``tracking_id``. The next save replaces it in the stores.
        ``log`` has all stored messages, and is iterated only if the message is not in memory.
        Return whether a message was found.
        """
        identity = message.get("tracking_id")
        with self.lock:
            found = list(self._messages_in_memory(identity))
        if not found and identity:
            logged = (entry for entry in log if entry.message.get("tracking_id") == identity)
            found = [(entry.key, entry.number) for entry in logged]
        with self.lock:
            base = self.local.base
            if base.incarnation and base.is_empty and not self.local.own_turns:
                found = []  # the conversation was deleted while the log was read
            for key, number in found:
                self.local.redact(key, number, dump(message))
        for other in self.saver.others_unsaved():  # which may save the original
            for key, number in found:
                if key in other.held_turns:
                    other.redact(key, number, dump(message))
        return bool(found)

    def _messages_in_memory(self, identity: str | None) -> Iterator[tuple[TurnKey, int]]:
        for key, turn in reversed(self.local.held_turns.items()) if identity else ():
            for number, data in enumerate(turn.messages):
                if has_identity(data, identity):
                    yield key, number

    def capture(self, messages: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any]) -> None:
        """Copy an agent's present messages and states to its conversation, for the next save.

        ``snapshot`` has the agent's states, such as ``agent.state``, keyed as in a Strands
        snapshot.
        """
        with self.lock:
            local = self.local
            if local.is_reset:
                return  # history and states are of a deleted or expired conversation
            view = slots_of(messages, local.view, local.message, self._messages_in_memory)
            local.set_view(view if self.keeps_window else ())
            entries, notes = entries_of(snapshot)
            if (entries, notes) == self._captured and not local.has_changes():
                return
            given, self._given, self._captured = self._given, entries, (entries, notes)
            changed = {name: load(one) for name, one in entries.items() if given.get(name) != one}
            if INTERRUPTS in changed and INTERRUPTS in given:
                waited = {INTERRUPTS: load(given[INTERRUPTS])}
                if is_interrupted(waited) and not is_interrupted(local.states):
                    del changed[INTERRUPTS]  # another process has ended the interrupt
            deleted = given.keys() - entries.keys()
            changed |= {name: [] for name in deleted if name.startswith(STATE)}
            if changed:
                local.set_states(changed)
            if notes is not None:
                local.new_manager_state = load(notes)

    def set_entry(self, name: str, value: Any) -> None:
        """Set a named value, such as a Graph's state, that the next save stores."""
        with self.lock:
            if not self.local.is_reset:
                self.local.set_states({name: load(dump(value))})

    def note_agent_states(self, snapshot: Mapping[str, Any]) -> None:
        """Remember the states of a new or restored agent, so that later changes can be recognized.

        ``snapshot`` has the states, keyed as in a Strands snapshot.
        """
        with self.lock:
            self._given = serialize_states(self.local.states)
            self._captured = entries_of(snapshot)

    def set_changed_meta(self, metadata: Mapping[str, Any]) -> None:
        """Store the agent's metadata values that have changed, such as the user's intent.

        ``metadata`` has all present values, keyed by name. Before the conversation's first message,
        nothing is stored. The next call after that message stores the values.
        """
        before = self._agent_meta
        changes = {
            name: value
            for name, value in metadata.items()
            if value != before.get(name) and (value or name in before)
        }
        if changes and self.local.record.message_count and not self.local.is_reset:
            self._agent_meta |= changes
            self.set_meta(changes)

    def set_meta(self, changed: Mapping[str, Any]) -> None:
        """Set metadata of the conversation, such as the user's locale. Keep its other metadata."""
        with self.lock:
            values = {f"{META}{name}": load(dump(value)) for name, value in changed.items()}
            self.local.set_states(values)

    # Changes of other processes

    @property
    def has_remote_changes(self) -> bool:
        """Whether the agent lacks changes of the conversation, such as another process's turns."""
        with self.lock:
            local = self.local
            if local.has_conflict or local.is_reset or local.window != local.view:
                return True
            return serialize_states(local.states) != self._given

    def adopt_changes(self, history: Sequence[Message]) -> list[Message] | None:
        """Take over other processes' changes before a turn, and return the agent's new history.

        Messages of ``history``, the present history, are reused if they are unchanged.

        Returns:
            The new history; an empty list if the model keeps the messages itself. None if the agent
            must keep its present history: nothing has changed, or a message of the new history
            cannot be read now.
        """
        if not self.has_remote_changes:
            return None
        self.storage.complete()
        with self.lock:
            local = self.local
            if local.is_reset:
                self._last, self._agent_meta = None, {}
            elif any(local.message(slot) is None for slot in set(local.window) - set(local.view)):
                return None
            before = local.view
            messages = messages_of(
                local.adopt_window(), local.message, before=before, present=history
            )
            self._given = serialize_states(local.states)
            return messages if self.keeps_window else []

    # Stored content

    @property
    def meta(self) -> dict[str, Any]:
        """Metadata of the conversation, such as the user's locale, keyed by name."""
        states = self.local.states.items()
        return {name.removeprefix(META): one for name, one in states if name.startswith(META)}

    @property
    def snapshot(self) -> dict[str, Any]:
        """Stored states of the agent, such as ``agent.state``, keyed as in a Strands snapshot.

        Raises:
            CorruptRecordError: A state is malformed.
        """
        with self.lock, parsing(self.key.name):
            return snapshot_of(self.local.states, copy.deepcopy(self.local.manager_state))

    def include_unsaved(self, in_use: AgentConversation) -> None:
        """Let ``history`` also return the messages that an agent of this process has not saved yet.

        ``in_use`` is the object through which the agent uses the conversation.
        """
        with in_use.lock:
            own, base = in_use.local.own_turns, in_use.local.base
            if not 0 < base.incarnation < self.local.base.incarnation:
                self.local.own_turns |= {
                    key: base.redact_turn(key, turn) for key, turn in own.items()
                }

    def history(
        self, *, last: int | None = None, before: LogPosition | None = None
    ) -> list[LogEntry]:
        """Return messages of the conversation in order, also those removed from ``agent.messages``.

        Args:
            last: Number of messages to return, counted back from the end. None: all messages.
            before: Position of a message. Only messages before this message are returned. None: the
                messages up to the newest one.

        Raises:
            ValueError: The conversation no longer has the message at the position ``before``.
        """
        if last == 0:
            return []
        newest = last and last + (before.number + 2 if before else 0)
        while True:
            entries, count = self._read_log(newest=newest, until=before and before.key)
            end = len(entries)
            if before is not None:
                keys = [(entry.key, entry.number) for entry in entries]
                if (before.key, before.number) not in keys:
                    raise ValueError(
                        "after names a message that the session no longer has; begin again without"
                        " it"
                    )
                end = keys.index((before.key, before.number))
            if newest is None or last is None or end >= last or count < newest:
                break
            newest *= 2
        if last is None or (before is None and end < last):
            return entries
        # The numbers of a part of the log begin at 1.
        record = self.local.record
        seq, turn = before[:2] if before else (record.message_count, record.turn_count)
        at = entries[end if before else -1]
        seq, turn = max(0, seq - at.seq), max(0, turn - at.turn)
        return [
            replace(entry, seq=entry.seq + seq, turn=entry.turn + turn)
            for entry in entries[:end][-last:]
        ]

    def _read_log(
        self, *, newest: int | None = None, until: TurnKey | None = None
    ) -> tuple[list[LogEntry], int]:
        """Return messages of the log, oldest first, and the number of messages that were found.

        A placeholder replaces each missing message. Only turns up to ``until`` are read, and at
        least the last ``newest`` messages of them.
        """
        read = self.storage.history(newest=newest, until=until)
        log = {key: turn for key, turn in read if until is None or key <= until}
        if self.in_use is not None and until is None:
            self.in_use.local.keep_evicted(
                {key: turn for key, turn in log.items() if turn.messages}
            )
        first = None if newest is None else min(log, default=until)
        with self.lock:
            base = self.local.base
            lengths = {
                key: base.seen.get(key, 0)
                for key in base.shown_keys
                if (first is None or key >= first) and (until is None or key <= until)
            }
        return log_entries(log, lengths), sum(len(turn.messages) for turn in log.values())

    def stats(self, agent: Agent | None) -> SessionStats:
        """Return statistics of the conversation, such as the number of turns and messages.

        ``agent`` is None if this process has no agent of the conversation.
        """
        usage = getattr(agent.conversation_manager, "usage", None) if agent else None
        used = usage(agent) if callable(usage) else {}
        now = self.tiers.clock()
        hot, hot_error = _state_of(self.storage.hot)
        durable, durable_error = _state_of(self.storage.durable)
        with self.lock:
            local, record, created = self.local, self.local.record, self.local.base.created
            unchanged = [slot for slot in local.window if slot.key and slot.body is None]
            times = (local.original(slot)[1] for slot in unchanged)
            return SessionStats(
                turns=record.turn_count,
                messages=record.message_count,
                window_messages=len(agent.messages) if agent else len(local.window),
                left_messages=max(0, record.message_count - len(unchanged)),
                unsaved_messages=local.unsaved_messages,
                dropped_messages=local.dropped,
                possible_loss=self.possible_loss,
                hot=hot,
                hot_error=hot_error,
                durable=durable,
                durable_error=durable_error,
                tokens=used.get("tokens"),
                budget=used.get("budget"),
                left=used.get("left"),
                age=max(0.0, now - created) if created else 0.0,
                oldest_turn_age=next((max(0.0, now - at) for at in times if at is not None), None),
            )


def check_messages(messages: Iterable[Any]) -> None:
    """Check that Strands can process the given messages.

    Raises:
        ValueError: A message lacks a role, content blocks, or a part of a tool call or result.
    """
    for message in messages:
        if not is_message(message):
            raise ValueError(
                "messages must have a role and a list of content blocks: text in what the"
                " assistant says, an id in each tool call and result, name and input in each call;"
                f" got {message!r:.200}"
            )


def _state_of(tier: Tier | None) -> tuple[str, str]:
    if tier is None:
        return "none", ""
    return "up" if tier.health.is_up else "down", tier.health.error


def _check_merge(states: Mapping[str, Any], found: Record, has_turns: bool) -> None:  # noqa: FBT001
    found_states = {name: entry.value for name, entry in found.states.items()}
    has_work = has_turns or ORCHESTRATOR in states  # other states are merged one by one
    if has_work and (is_interrupted(states) or is_interrupted(found_states)):
        raise ConflictError(
            "another writer saved the conversation while an interrupt was active; the changes"
            " cannot be merged: create the agent again to continue the stored conversation"
        )
