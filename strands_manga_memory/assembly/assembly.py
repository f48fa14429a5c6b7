"""Assembly: puts agents together from the parts that a process has opened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model, ModelRouter
from strands.plugins import Plugin

from strands_manga_memory import memory
from strands_manga_memory.arguments import of_kind
from strands_manga_memory.assembly.agent_options import (
    AgentKwargs,
    HandedOn,
    Options,
    SessionSettings,
    check_names,
    merged,
    split_options,
)
from strands_manga_memory.assembly.agent_parts import (
    EnvironmentMetadata,
    Prepared,
    UserTier,
    check_of_storage,
    keeping_state,
    make_recall_plugin,
    surroundings,
    told_once,
    watching,
)
from strands_manga_memory.assembly.history_plan import HistoryPlan
from strands_manga_memory.assembly.process import Process
from strands_manga_memory.assembly.settings import History
from strands_manga_memory.scope import ConversationScope
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.stores import Codec, SQLiteTable
from strands_manga_memory.telemetry import ObservedCodec

if TYPE_CHECKING:
    from strands_manga_memory import conversation, prompt

DEFAULT_AGENT = "default"
"""What Strands calls an agent that was given no id."""


class Assembly(Process):
    """What ``MangaMemory`` does for agents: the sessions, memories and policies of one, put together."""

    _prefetched: dict[ConversationScope, Prepared]

    def agent(
        self,
        model: Model | ModelRouter | str | None = None,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = DEFAULT_AGENT,
        tenant: str | None = None,
        session: bool = True,
        **options: Unpack[Options],
    ) -> Agent:
        """Build an agent: ``strands.Agent`` with what ``agent_kwargs`` returns.

        Args:
            model: The model, a router, or the id of a model of Bedrock; None: the one Strands takes by default.
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session.
            tenant: The tenant; None is a tenant of its own.
            session: As ``agent_kwargs`` has it.
            options: The other arguments of ``agent_kwargs``, those of ``strands.Agent`` among them.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        scope: dict[str, Any] = {"user_id": user_id, "session_id": session_id, "agent_id": agent_id, "tenant": tenant}
        arguments: dict[str, Any] = {**self.agent_kwargs(session=session, **scope, **options)}
        return Agent(model=model, **arguments)

    def agent_kwargs(
        self,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = "default",
        tenant: str | None = None,
        session: bool = True,
        history: History | None = None,
        max_tokens: int | None = None,
        trim_to: int | None = None,
        max_turns: int | None = None,
        recall: bool | None = None,
        summary_schedule: conversation.SummarySchedule | None = None,
        learn: memory.Learn | None = None,
        task_state: bool | Mapping[str, Any] | None = None,
        instructions: bool | prompt.InstructionFiles = False,
        cache_monitor: prompt.PromptCacheMonitor | None = None,
        **options: Unpack[HandedOn],
    ) -> AgentKwargs:
        """Return keyword arguments for ``strands.Agent``: ``conversation_manager``, ``session_manager``, and the ``agent_id``.

        With ``memories``, also ``memory_manager``, which searches them, and among the ``plugins`` one that tells the agent
        about its user; with ``recall`` one that brings back what has left the window.

        Python takes no argument twice: ``Agent(plugins=[mine], **memory.agent_kwargs(...))`` is a TypeError where there are
        plugins of ours. What else you have for the agent may be given here, or to ``memory.agent(...)``:
        ``Agent(model=model, **memory.agent_kwargs(..., plugins=[mine], hooks=[...], tools=[...]))``. Plugins are added to ours;
        a ``conversation_manager``, ``session_manager`` or ``memory_manager`` takes the place of ours, and a ``context_manager``
        that of our conversation manager.

        Args:
            user_id: The user.
            session_id: The session, unique within the user.
            agent_id: The agent, unique within the session.
            tenant: The tenant; None is a tenant of its own.
            session: False for nodes of a Graph or Swarm and for agents used as tools, which carry no session manager.
            history: ``importance``: kept within ``max_tokens`` at every model call. ``summarize``: it may grow to about twice
                as much (8,000 by default, at most half the window of the agent's model) or 20 turns; then a verified summary,
                written after the response by the ``aux_model``, and the last 3 turns and what importance keeps are within
                ``max_tokens``. ``compact``: it may grow until a request comes near the window of the model; then room is made
                in stages, as ``TieredCompactionConversationManager`` does, and ``max_tokens`` and ``trim_to`` have no
                part in it. Default that of the process: ``importance``.
            max_tokens: Tokens of history. Default that of the process; unset there, a quarter of the context window of the
                model that the agent is built with, at most 16,384 (4,096 with summaries), and 4,096 if the model does not know
                its window: see ``budget_plan``.
            trim_to: Tokens to which a history over ``max_tokens`` is brought in one step, so that until the next step each
                request begins with the whole one before and a provider's prompt cache has it. ``max_tokens`` itself: a full
                history holds as much as it can, and is trimmed in every turn. Default that of the process: what leaves room
                for about seven turns like the last ones, at least two thirds of ``max_tokens``.
            max_turns: Turns that a history keeps at most, whatever room it has. Default: as many as fit.
            recall: Bring back earlier messages of this session that fit the user's question, and offer the model a tool to
                search them. 1,024 of ``max_tokens``, at most a quarter, are reserved for them. The
                first question of each agent reads the session's log, once. Default that of the process: False.
            summary_schedule: Who waits for the summaries of ``summarize`` and ``compact``, and how long. Default
                ``SummarySchedule()``: nobody, they are written in the background.
            learn: How preferences of the user are picked up from what he says, once the turn is over. ``rules``: by rules, in
                English and Japanese. ``model``: then also by the agent's ``aux_model``, in the background; a value whose words
                he did not use is left out. ``nothing``: not at all. Default ``rules`` with ``memories``.
            task_state: Whether a ``StateCoordinator`` keeps where the task stands and tells the model; a mapping: its keyword
                arguments, such as ``intents``. What ``changes(...)`` publishes reaches it. Default that of the process: False.
            instructions: Whether instruction files are told on the system side, read once; True: ``InstructionFiles()``, those
                of the working directory, ``~/.agent`` and ``/etc/agent/global``. Default False.
            cache_monitor: Watches how much of the prompts the provider's cache had; one may serve all agents. Default none.
            options: Keyword arguments of this ``TieredSessionManager``, over those of the process, and of ``strands.Agent``.

        Raises:
            ValueError: An id or a setting is not allowed.
        """
        settings, own = split_options(options)
        session = session and own.get("session_manager") is None
        wanted = self.settings.over(history=history, max_tokens=max_tokens, trim_to=trim_to, max_turns=max_turns, recall=recall)
        if summary_schedule is not None:
            from strands_manga_memory.conversation import SummarySchedule

            of_kind("summary_schedule", summary_schedule, SummarySchedule)
        plan = HistoryPlan(wanted, summary_schedule)
        ours: list[Plugin] = [*told_once(instructions)]
        scope = ConversationScope(user_id, session_id, agent_id, tenant=tenant)
        arguments: AgentKwargs = {} if agent_id == DEFAULT_AGENT else {"agent_id": agent_id}
        prepared = (None if settings else self._prefetched.pop(scope, None)) or self._prepared(scope, settings, session=session)
        environment, manager = prepared.environment, prepared.manager if session else None
        arguments |= {} if manager is None else {"session_manager": manager}
        if self.memories is not None or learn not in (None, "nothing"):
            self._known()
            store, cache = self.user(user_id, tenant=tenant), self._cache(user_id, tenant)
            ours.append(user := memory.UserContext(store, cache, session_id=session_id, learn=learn or "rules"))
            if manager is not None:
                manager.when_redacted(user.redacted)
            arguments["memory_manager"] = MemoryManager(
                stores=[store], injection={"query": user.query, "format": user.collect_found}
            )
        state = wanted.task_state if task_state is None else task_state
        if state is not False:
            given = {"source": self._environment, "scope": scope, "hot": self.hot, "codec": self._memory_codec}
            given |= {} if manager is None else {"is_stored": check_of_storage(manager)}
            given |= {f"wall_{name}": clock for name, clock in self._clock.items()}
            coordinator = keeping_state(state, environment=environment, **given)
            prepared.tier.follow(coordinator)
            ours.append(coordinator)
        elif environment is not None:
            ours.append(EnvironmentMetadata(environment))
        arguments["conversation_manager"] = plan.manager(session=manager, hot=self._stores["hot"])
        if wanted.recall:
            clock = self._clock.get("clock", time.time)
            ours.append(make_recall_plugin(plan.recall_tokens, session=manager, embed=self._embed, clock=clock))
        ours += watching(cache_monitor)
        self._parts.update(dict.fromkeys([arguments["conversation_manager"], *ours], scope))
        return merged({**arguments, "plugins": ours}, own)

    def session(self, scope: str | ConversationScope, **settings: Unpack[SessionSettings]) -> TieredSessionManager:
        """Return a session manager of a conversation: for its log, its metadata, or an agent built by hand.

        Args:
            scope: Whose it is, or a plain session id: one that belongs to no user.
            settings: Keyword arguments of this ``TieredSessionManager``, over those of the process.

        Raises:
            ValueError: A setting is not allowed.
        """
        check_names(settings)
        return self._manager(scope, settings, UserTier(None))

    def user(self, user_id: str, *, tenant: str | None = None) -> memory.UserMemoryStore:
        """Return what is known about a user.

        Raises:
            ValueError: ``memories`` was not opened, or an id is not allowed.
        """
        return memory.UserMemoryStore(
            self._known(),
            retention=self.settings.retention(),
            user_id=user_id,
            tenant=tenant,
            profile=self._profile,
            embed=self._embed,
            pii=self._pii,
            codec=self._memory_codec,
            hot=self._stores["hot"],
            outbox=self._outbox,
            **self._clock,
        )

    def _cache(self, user_id: str, tenant: str | None) -> memory.ProfileCache:
        store = self.user(user_id, tenant=tenant)
        return memory.ProfileCache(
            self._stores["hot"],
            user_id=user_id,
            tenant=tenant,
            outbox=self._outbox,
            pii=self._pii,
            codec=self._memory_codec,
            # Where the hot tier is this process alone, a local table tells of other processes' changes at each model call.
            # A table over the network is not read on the way to a model.
            table=store.table_view(shared=self.hot.survives_process or not isinstance(self.memories, SQLiteTable)),
        )

    async def prefetch(self, scope: ConversationScope) -> None:
        """Read a conversation off the event loop, so that the next agent of this scope is built without I/O."""
        prepared = await asyncio.to_thread(self._prepared, scope, {}, session=True)
        if prepared.manager is not None:
            await prepared.manager.prefetch(scope.agent_id)
        self._prefetched[scope] = prepared

    def _prepared(self, scope: ConversationScope, settings: Mapping[str, Any], *, session: bool) -> Prepared:
        environment = surroundings(self._environment, scope)
        tier = UserTier(environment)
        return Prepared(self._manager(scope, settings, tier) if session else None, tier, environment)

    def _manager(self, scope: str | ConversationScope, settings: Mapping[str, Any], tier: UserTier) -> TieredSessionManager:
        if self.settings.telemetry and isinstance(settings.get("codec"), Codec):
            settings = {**settings, "codec": ObservedCodec(settings["codec"])}
        asked = {**self._settings, **settings}
        if "ttl" not in settings:  # one that is given for this very agent is left as it is
            asked["ttl"] = tier.policy(asked.get("ttl") or TtlPolicy())
        manager = TieredSessionManager(scope, hot=self._stores["hot"], durable=self._stores["durable"], **asked)
        self._managers.add(manager)
        return manager
