"""SessionStats: what is known of one conversation."""

from __future__ import annotations

from typing import TypedDict

from strands import Agent

from strands_manga_memory.session.live.agent_conversation import AgentConversation
from strands_manga_memory.stores.health import TierHealth


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
        hot_error: Why it is down: the cause of a refusal and what mends it, else the text of the error; else empty.
        hot_failures: How often it did not answer, or refused, in this process.
        durable: ``up``, ``down`` or ``none``.
        durable_error: As ``hot_error``.
        durable_failures: As ``hot_failures``.
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
    hot_error: str
    hot_failures: int
    durable: str
    durable_error: str
    durable_failures: int
    tokens: int | None
    budget: int | None
    left: int | None
    age: float
    oldest_turn_age: float | None


def stats_of(conversation: AgentConversation, agent: Agent | None) -> SessionStats:
    """Return what is known of a conversation, and of its agent's history if the agent is alive."""
    usage = getattr(agent.conversation_manager, "usage", None) if agent else None
    used = usage(agent) if callable(usage) else {}
    now, saver, local = conversation.tiers.clock(), conversation.saver, conversation.local
    hot, hot_error, hot_failures = _standing(None if conversation.hold.hot is None else saver.hot_health)
    durable, durable_error, durable_failures = _standing(None if conversation.hold.durable is None else saver.durable_health)
    with conversation.lock:
        window, base = local.window, local.base
        as_said = [slot for slot in window if slot.key is not None and slot.body is None]
        times = (local.time(slot) for slot in as_said)
        messages = conversation.message_count
        return SessionStats(
            turns=conversation.turn_count,
            messages=messages,
            window_messages=len(agent.messages) if agent else len(window),
            left_messages=max(0, messages - len(as_said)),
            unsaved_messages=local.unsaved_messages,
            dropped_messages=local.dropped,
            possible_loss=conversation.possible_loss,
            hot=hot,
            hot_error=hot_error,
            hot_failures=hot_failures,
            durable=durable,
            durable_error=durable_error,
            durable_failures=durable_failures,
            tokens=used.get("tokens"),
            budget=used.get("budget"),
            left=used.get("left"),
            age=max(0.0, now - base.created) if base.created else 0.0,
            oldest_turn_age=next((max(0.0, now - at) for at in times if at is not None), None),
        )


def _standing(health: TierHealth | None) -> tuple[str, str, int]:
    return ("none", "", 0) if health is None else ("up" if health.is_up else "down", health.error, health.failures)
