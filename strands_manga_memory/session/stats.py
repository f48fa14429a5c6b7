"""SessionStats: what is known of one conversation."""

from __future__ import annotations

from typing import TypedDict

from strands import Agent

from strands_manga_memory.session.conversation import Conversation
from strands_manga_memory.session.window import Logged


class SessionStats(TypedDict):
    """What a session manager knows of one conversation.

    Attributes:
        turns: User requests so far.
        messages: Messages logged so far.
        window_messages: Messages in the agent's history.
        left_messages: Messages of the log that the history does not hold as they were said.
        unsaved_messages: Messages that no tier has confirmed.
        dropped_messages: Unsaved messages of a conversation that was deleted meanwhile.
        possible_loss: True if the hot tier may have held turns that were gone when the conversation was restored.
        hot: ``up``, ``down`` or ``none``.
        durable: ``up``, ``down`` or ``none``.
        tokens: Tokens of the history, if the conversation manager counts them; else None.
        budget: Its budget; else None.
        left: What is left of it; else None.
        age: Seconds since the conversation began.
        oldest_turn_age: Seconds since the oldest message of the history was logged; None if it is empty.
    """

    turns: int
    messages: int
    window_messages: int
    left_messages: int
    unsaved_messages: int
    dropped_messages: int
    possible_loss: bool
    hot: str
    durable: str
    tokens: int | None
    budget: int | None
    left: int | None
    age: float
    oldest_turn_age: float | None


def stats_of(conversation: Conversation, agent: Agent | None) -> SessionStats:
    """Return what is known of a conversation, and of its agent's history if the agent is alive."""
    usage = getattr(agent.conversation_manager, "usage", None) if agent else None
    used = usage(agent) if callable(usage) else {}
    tiers = conversation.tiers
    now = tiers.clock()
    with conversation.lock:
        model = conversation.model
        oldest = next((slot.at for slot in model.slots if hasattr(slot, "at")), None)
        return SessionStats(
            turns=model.head.turns,
            messages=model.head.messages,
            window_messages=len(agent.messages) if agent else len(model.slots),
            left_messages=max(0, model.head.messages - sum(isinstance(slot, Logged) for slot in model.slots)),
            unsaved_messages=model.unsaved,
            dropped_messages=model.dropped,
            possible_loss=conversation.possible_loss,
            hot=_health(tiers.hot, tiers.hot_health.is_up),
            durable=_health(tiers.durable, tiers.durable_health.is_up),
            tokens=used.get("tokens"),
            budget=used.get("budget"),
            left=used.get("left"),
            age=max(0.0, now - model.head.created),
            oldest_turn_age=None if oldest is None else max(0.0, now - oldest),
        )


def _health(store: object, is_up: bool) -> str:  # noqa: FBT001 - private
    return "none" if store is None else "up" if is_up else "down"
