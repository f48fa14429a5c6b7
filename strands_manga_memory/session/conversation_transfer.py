"""Transfer, fork and rewind of stored conversations.

A transfer stores a copy of a conversation in other stores. A fork begins a new conversation with a
copy of another conversation's first turns. A rewind removes the last turns of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from strands.types.content import Message

from strands_manga_memory.exceptions import ConflictError, CorruptRecordError, StoreUnavailableError
from strands_manga_memory.session.protocol.conversation_storage import (
    OPEN_SECONDS,
    ConversationStorage,
)
from strands_manga_memory.session.protocol.durable_tier import attempts
from strands_manga_memory.session.protocol.record import (
    SEEN_TURNS,
    Record,
    Slot,
    Turn,
)
from strands_manga_memory.session.protocol.record_join import join
from strands_manga_memory.session.session_log import turn_numbers

_ENDED = "the conversation was deleted or rewound, or has expired, meanwhile"

TransferResult = Literal["new", "exists", "ended"]
"""Result of a transfer: ``new``, ``exists`` (stored before), or ``ended`` (expired or deleted)."""


@dataclass(frozen=True, kw_only=True)
class TransferredConversation:
    """Messages, states and metadata of an agent's conversation, for a transfer to other stores.

    Args:
        log: All messages in order, with their times in seconds since 1970. Each message has a
            ``tracking_id``.
        window: The agent's history (``agent.messages``). A message with the ``tracking_id`` of a
            message in ``log`` is the same message, possibly edited. Any other message, such as a
            summary, is only in the history.
        states: The agent's states, keyed as in a Strands snapshot: ``state``,
            ``conversation_manager_state``, ``interrupt_state``, ``model_state``. If a state is
            missing, the agent keeps its initial state.
        metadata: The values that ``set_metadata`` stored.
        created: Time when the conversation began, in seconds since 1970. None: now.
    """

    log: Sequence[tuple[Message, float]]
    window: Sequence[Message]
    states: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created: float | None = None


def fork(source: ConversationStorage, *, at_turn: int, to: ConversationStorage) -> None:
    """Begin a new conversation with a copy of another conversation's first turns.

    Args:
        source: Access to the conversation to copy. The object must be new: no agent may use it. The
            stored conversation is not changed.
        at_turn: Number of the last turn to copy, counted from 1.
        to: Access to the new conversation. This object must be new, too.

    Raises:
        ValueError: There is no turn ``at_turn``.
        ConflictError: The new conversation exists already with other turns, a turn to copy is still
            open, or the copied conversation ended meanwhile.
        CorruptRecordError: A turn to copy cannot be read.
        StoreUnavailableError: A tier does not answer; call ``fork`` again.
    """
    if error := source.load(touch=False):
        raise error  # the other tier alone may lack turns
    content = content_at(source, at_turn)
    if source.durable is not None:
        source.read_head()  # a deletion may have removed turns while the log was read
    if source.local.base.incarnation != content.incarnation:
        raise ConflictError(_ENDED)
    known = to.local.ids
    seen = {key: content.seen[key] for key in content.turns}
    content = replace(content, seen=seen, ids=known, created=to.clock())
    if begin_with(to, content, replaces=False):
        return
    stored = to.local.base
    is_same = stored.turn_count == at_turn and stored.seen.items() <= seen.items()
    # An earlier call, whose answer was lost, may have made this fork.
    if not is_same or known == source.local.ids:
        raise ConflictError(
            f"session_id {known.get('session')!r:.80} has a conversation of agent_id"
            f" {known.get('member')!r:.80} already: choose another session_id, or delete that"
            " session first"
        )


def rewind(storage: ConversationStorage, *, at_turn: int) -> None:
    """Remove all turns of a conversation after the turn ``at_turn``.

    A running agent keeps its old history until its process reads the conversation again. A turn
    that another process saves during this call is kept, unless ``at_turn`` is 0.

    Args:
        storage: Access to the conversation. The object must be new: no agent may use it.
        at_turn: Number of the last turn to keep, counted from 1; 0 deletes the whole conversation
            and its stored states.

    Raises:
        ValueError: There is no turn ``at_turn``.
        ConflictError: A turn to keep is still open, or the conversation ended meanwhile.
        CorruptRecordError: A turn to keep cannot be read.
        StoreUnavailableError: A tier does not answer; call ``rewind`` again.
    """
    if error := storage.load(touch=False):
        raise error  # turns that were not read would be kept, as new ones
    base = storage.local.base
    if at_turn == 0 and (base.deleted_below or not base.is_empty):  # perhaps deleted in part
        storage.delete()
        return
    if not begin_with(storage, content_at(storage, at_turn), replaces=True):
        raise ConflictError(_ENDED)


def content_at(storage: ConversationStorage, at_turn: int) -> Record:
    """Return a record of a conversation's history and states at the end of the turn ``at_turn``.

    Turns are counted from 1. For the last turn, these are the present history and states. For an
    earlier turn, the history has at most 100 turns, and states set after the turn are missing,
    because only their latest values are stored.

    ``storage`` must be loaded. The record's ``seen``, the number of messages of each turn, also has
    the turns after ``at_turn``.

    Raises:
        ValueError: There is no turn ``at_turn``.
        ConflictError: A turn up to ``at_turn`` is still open.
        CorruptRecordError: A turn up to ``at_turn`` cannot be read.
        StoreUnavailableError: A tier does not answer.
    """
    base, now = storage.local.base, storage.clock()
    log = dict(storage.history())
    numbers = turn_numbers(log)
    last = max(numbers.values(), default=0)
    if not last:
        raise ValueError(
            f"at_turn {at_turn!r:.80} does not exist: the conversation has no turn; check the ids"
        )
    if not 1 <= at_turn <= last:
        raise ValueError(
            f"at_turn must be at most {last}, the number of turns of the conversation, got"
            f" {at_turn!r:.80}"
        )
    turns = {key: log[key] for key, number in numbers.items() if number <= at_turn}
    if any(turn.is_open and max(turn.times) > now - OPEN_SECONDS for turn in turns.values()):
        raise ConflictError(
            f"turn {at_turn} is still open: wait until it has ended, or choose an earlier one"
        )
    if damaged := [key for key, turn in turns.items() if not turn.messages]:
        raise CorruptRecordError(
            "a turn up to the wanted one cannot be read", record=str(damaged[0])
        )
    after = min(log.keys() - turns.keys(), default=None)
    turns = {key: replace(turn, is_open=False) for key, turn in turns.items()}
    lengths = {key: len(turn.messages) for key, turn in log.items()}
    window = tuple(
        Slot(key, number) for key in sorted(turns)[-SEEN_TURNS:] for number in range(lengths[key])
    )
    states = base.states
    if after is not None:
        # The author of a turn had seen every earlier version, so the key of the turn has a later
        # time than those versions.
        states = {name: entry for name, entry in states.items() if entry.version.time < after.time}
    else:  # the log may have grown since the record was read
        grown = Record(incarnation=base.incarnation, window=window, seen=lengths)
        window = join(base, grown).window
    removed = {key: length for key, length in lengths.items() if key not in turns}
    return replace(
        base,
        window=window,
        manager_state=base.manager_state if after is None else None,
        seen={**base.seen, **lengths},
        removed={**base.removed, **removed},
        states=states,
        redactions={key: found for key, found in base.redactions.items() if key in turns},
        turns=turns,
        unlogged=set(turns),
        last_used=now,
        turn_count=at_turn,
        message_count=sum(lengths[key] for key in turns),
    )


def begin_with(storage: ConversationStorage, content: Record, *, replaces: bool) -> bool:
    """Begin a new incarnation (run) of a conversation with the given content.

    An incarnation ends when the conversation is deleted, expires or is rewound.

    Args:
        storage: Access to the conversation. The object must be new: no agent may use it.
        content: The content. Its turns are also written to the log of the new incarnation.
        replaces: False: begin a conversation that does not exist yet. True: replace a conversation
            by the rewound ``content``, and keep turns that were stored after ``content`` was read.

    Returns:
        Whether the content was stored. False if the conversation exists or, with ``replaces``, if
        it has ended since ``content`` was read.
    """
    for _ in attempts(storage.first.name):
        found = [storage.read_hot(touch=False)] if storage.hot is not None else []
        found += [storage.read_head()] if storage.durable is not None else []
        base = storage.local.base
        if base.incarnation != content.incarnation if replaces else not base.is_empty:
            return False
        incarnation = storage.local.next_incarnation()
        # also above the content's versions: a fork's states have versions of the source
        version = storage.local.next_version(*found, content)
        record = replace(content, version=version, incarnation=incarnation)
        if replaces:
            record = replace(record, last_rewind=incarnation)
            record = join(record, _with_new_turns_unlogged(storage, content))
        else:
            record = replace(record, deleted_below=incarnation, last_rewind=0)
        if storage.begin_incarnation(record.normalize()):
            break
    try:
        if replaces and storage.hot is not None:
            # also an empty one, which a writer may be about to fill with the old content
            storage.save_hot(fills=True)
        storage.flush(closes=True)
        if storage.durable is not None:
            storage.durable.purge(storage.local.base.incarnation)
    except StoreUnavailableError:
        if replaces:  # the hot tier may still have the replaced content
            raise
    return True


def _with_new_turns_unlogged(storage: ConversationStorage, content: Record) -> Record:
    """Return the stored record, prepared for a merge into the rewound record ``content``.

    Its unlogged turns, which the merge adds, are those saved after ``content`` was read.
    """
    base = storage.local.base
    new = {key for key, length in base.seen.items() if length > content.seen.get(key, 0)}
    short = {key for key in new if len(base.turns.get(key, Turn()).messages) < base.seen[key]}
    turns = storage.first.get_turns(base.incarnation, short)
    return replace(base.with_turns(turns), unlogged=new)
