"""View of one agent's memory for the side panel, as JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AfterToolCallEvent,
    MessageAddedEvent,
)
from strands.middleware import InvokeModelContext, InvokeModelStage, MiddlewareNext, TypedEvent

from strands_manga_memory import ImportanceWeightedConversationManager, TieredSessionManager
from strands_manga_memory.messages import injected_count
from strands_manga_memory.state import coordinator_of

MOST_MESSAGES = 100
_MOST_CHARACTERS = 200


class Watch:
    """Observer of one agent, which calls ``on_change`` after each change while the agent answers.

    Args:
        agent: The agent.
        manager: Its conversation manager.
        session: Its session manager.
        log: Messages so far, from the session's log.
        on_change: Callback on the agent's event loop.
    """

    def __init__(
        self,
        agent: Agent,
        manager: ImportanceWeightedConversationManager,
        session: TieredSessionManager,
        log: Iterable[Any],
        on_change: Callable[[Watch], None],
    ) -> None:
        self._agent = agent
        self._manager = manager
        self._session = session
        self._log = list(log)
        self._on_change = on_change
        self._added_texts: list[str] = []
        self._request_tokens = 0
        agent.add_hook(self._record_message, MessageAddedEvent)
        for event in (AfterModelCallEvent, AfterToolCallEvent, AfterInvocationEvent):
            agent.add_hook(self._notify, event)
        agent.add_middleware(InvokeModelStage, self._record_request)

    def _record_message(self, event: MessageAddedEvent[Agent]) -> None:
        self._log.append(dict(event.message))  # unchanged by later truncation

    def _notify(self, event: object) -> None:
        self._on_change(self)

    async def _record_request(
        self, context: InvokeModelContext, next_fn: MiddlewareNext[InvokeModelContext, TypedEvent]
    ) -> AsyncGenerator[TypedEvent, None]:
        """Record the request as the model gets it."""
        system = (
            context.system_prompt[1:] if isinstance(context.system_prompt, list) else []
        )  # behind the role's own prompt
        injected = [
            block for one in context.messages for block in one["content"][: injected_count(one)]
        ]
        self._added_texts = [block["text"] for block in (*system, *injected) if "text" in block]
        self._request_tokens = self._manager.usage(self._agent)["tokens"]
        self._on_change(self)
        async for event in next_fn(context):
            yield event

    def view(self) -> dict[str, Any]:
        """Return the current view."""
        usage = self._manager.usage(self._agent)
        coordinator = coordinator_of(self._agent)
        view = {
            "tokens": usage["tokens"],
            "budget": usage["budget"],
            "request_tokens": self._request_tokens,
            "messages": self._messages(),
            "added_texts": [text[:2_000] for text in self._added_texts],
            "tiers": self._tiers(),
        }
        if coordinator is not None:
            dialogue = coordinator.dialogue
            view["state"] = {
                "phase": str(dialogue.phase),
                "intent": dialogue.intent,
                "next_question": dialogue.next_question,
                "slots": [
                    {"name": slot.name, "value": slot.value, "status": str(slot.status)}
                    for slot in dialogue.slots.values()
                ],
                "entities": [
                    {
                        "type": entity.type,
                        "value": entity.value,
                        "confidence": "confirmed" if entity.is_confirmed else "inferred",
                    }
                    for entity in coordinator.entities.active()
                ],
            }
        return view

    def _messages(self) -> list[dict[str, Any]]:
        """Return the log with outcomes. Messages unknown to ``explain`` were evicted earlier."""
        outcomes = {outcome.tracking_id: outcome for outcome in self._manager.explain(self._agent)}
        rows = []
        for message in self._log[-MOST_MESSAGES:]:
            outcome = outcomes.get(message.get("tracking_id"))
            rows.append(
                {
                    "role": message["role"],
                    "text": _text(message),
                    "act": outcome.act if outcome else "",
                    "score": round(
                        outcome.score if outcome else self._manager.history.score(message), 2
                    ),
                    "tokens": (
                        outcome.tokens if outcome else self._manager.history.tokens([message])
                    ),
                    "outcome": outcome.outcome if outcome else "dropped",
                    "why": (
                        outcome.reason
                        if outcome
                        else "it left the window in an earlier turn; the log has it"
                    ),
                }
            )
        return rows

    def _tiers(self) -> dict[str, Any]:
        stats = self._session.live_stats()[0]
        names = (
            "hot",
            "durable",
            "turns",
            "messages",
            "window_messages",
            "unsaved_messages",
            "possible_loss",
        )
        return {name: stats[name] for name in names}  # type: ignore[literal-required]


def _text(message: Any) -> str:
    parts = []
    for block in message["content"]:
        if "text" in block:
            parts.append(block["text"])
        elif "toolUse" in block:
            parts.append(f"[calls {block['toolUse']['name']}]")
        elif "toolResult" in block:
            result = " ".join(
                each["text"] for each in block["toolResult"]["content"] if "text" in each
            )
            parts.append(f"[{block['toolResult']['status']}] {result}")
    text = " ".join(parts)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
