"""Hooks: what becomes of a session's agents, Graphs and Swarms when Strands' events say that something happened."""

from __future__ import annotations

from strands import Agent
from strands.hooks import (
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    AfterNodeCallEvent,
    BeforeInvocationEvent,
    BeforeMultiAgentInvocationEvent,
    HookOrder,
    HookRegistry,
    MessageAddedEvent,
)

from strands_manga_memory.session.agents import orchestrator
from strands_manga_memory.session.agents.waiting import saved
from strands_manga_memory.session.basis.tiers import SaveOn
from strands_manga_memory.session.members import Members

_AFTER_ALL_HOOKS = HookOrder.SDK_LAST + 1
_BEFORE_ALL_HOOKS = HookOrder.SDK_FIRST - 1


class SessionHooks:
    """The callbacks of a session. The save runs after every other hook, so that it sees what they changed.

    Args:
        members: Whom the events are about.
        save_on: Whether each message is saved by itself.
    """

    def __init__(self, members: Members, *, save_on: SaveOn) -> None:
        self._members, self._save_on = members, save_on

    def register(self, registry: HookRegistry) -> None:
        """Register the callbacks of turns and runs."""
        registry.add_callback(BeforeInvocationEvent, self._before_invocation, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(MessageAddedEvent, self._message_added)
        if self._save_on == "message":
            registry.add_callback(MessageAddedEvent, self._after_message, order=_AFTER_ALL_HOOKS)
        registry.add_callback(AfterInvocationEvent, self._turn_ended, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(AfterInvocationEvent, self._after_invocation, order=_AFTER_ALL_HOOKS)
        registry.add_callback(BeforeMultiAgentInvocationEvent, self._before_run, order=_BEFORE_ALL_HOOKS)
        registry.add_callback(AfterNodeCallEvent, self._after_node)
        registry.add_callback(AfterMultiAgentInvocationEvent, self._after_node, order=_AFTER_ALL_HOOKS)

    def _message_added(self, event: MessageAddedEvent[Agent]) -> None:
        self._members.agent(event.agent).append(event.message, event.agent)

    async def _before_invocation(self, event: BeforeInvocationEvent) -> None:
        await self._members.agent(event.agent).before_turn(event.agent)

    async def _after_message(self, event: MessageAddedEvent[Agent]) -> None:
        await self._members.agent(event.agent).after_message(event.message, event.agent)

    def _turn_ended(self, event: AfterInvocationEvent) -> None:
        """Take note of it before any other hook, because one that raises keeps the save from running."""
        self._members.agent(event.agent).turn_ended()

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        await self._members.agent(event.agent).after_turn(event)

    def _before_run(self, event: BeforeMultiAgentInvocationEvent) -> None:
        orchestrator.begin_run(self._members.run(event.source.id))

    async def _after_node(self, event: AfterNodeCallEvent | AfterMultiAgentInvocationEvent) -> None:
        conversation = self._members.run(event.source.id)
        is_over = isinstance(event, AfterMultiAgentInvocationEvent)
        await saved(conversation, orchestrator.request_save(event.source, conversation, is_over=is_over))
