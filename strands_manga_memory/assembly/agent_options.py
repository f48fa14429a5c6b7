"""The keyword arguments of sessions and agents: their types, a check of their names, and how ours and others come together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Required, TypedDict, cast

from strands.agent.conversation_manager import ConversationManager
from strands.memory import MemoryManager
from strands.plugins import Plugin

from strands_manga_memory.assembly.settings import History, MangaMemorySettings, SettingsError, unknown_setting
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.session.basis.tiers import Refresh
from strands_manga_memory.stores import Codec

if TYPE_CHECKING:
    from pydantic import BaseModel
    from strands import BackgroundTasksConfig, InterventionHandler, ModelRetryStrategy, Sandbox
    from strands.agent.state import AgentState
    from strands.experimental.context_manager import ContextManager, ContextManagerConfig
    from strands.hooks import HookCallback, HookProvider
    from strands.memory import MemoryManagerConfig
    from strands.models import Model
    from strands.session import SessionManager
    from strands.storage import Storage
    from strands.tools.executors import ConcurrentToolExecutor, SequentialToolExecutor
    from strands.types.agent import ConcurrentInvocationMode
    from strands.types.content import Messages, SystemContentBlock
    from strands.types.traces import AttributeValue

    from strands_manga_memory import conversation, memory, prompt


class SessionSettings(TypedDict, total=False):
    """The settings of a ``TieredSessionManager``, where its own page says what each means."""

    flush_every: int
    ttl: TtlPolicy | None
    refresh: Refresh
    resume_cold: bool
    codec: Codec | None
    hot_deadline: float
    durable_deadline: float
    max_unsaved: int
    clock: Callable[[], float]


class AgentKwargs(TypedDict, total=False):
    """What ``MangaMemory.agent_kwargs`` hands to ``strands.Agent``, beside what was given to be handed on.

    A part that was not asked for is not in it.
    """

    agent_id: str
    conversation_manager: ConversationManager
    session_manager: TieredSessionManager
    memory_manager: MemoryManager
    plugins: list[Plugin]


class PartsSettings(TypedDict, total=False):
    """What an agent remembers and is told, where the page of ``MangaMemory.agent_kwargs`` says what each means."""

    history: History | None
    max_tokens: int | None
    trim_to: int | None
    max_turns: int | None
    recall: bool | None
    summary_schedule: conversation.SummarySchedule | None
    learn: memory.Learn | None
    task_state: bool | Mapping[str, Any] | None
    instructions: bool | prompt.InstructionFiles
    cache_monitor: prompt.PromptCacheMonitor | None


class AgentOptions(TypedDict, total=False):
    """The keyword arguments of ``strands.Agent`` beside its model and its id, where its own page says what each means."""

    messages: Messages | None
    tools: list[Any] | None
    system_prompt: str | list[SystemContentBlock] | None
    structured_output_model: type[BaseModel] | None
    callback_handler: Callable[..., Any] | None
    conversation_manager: ConversationManager | None
    record_direct_tool_call: bool
    load_tools_from_directory: bool
    trace_attributes: Mapping[str, AttributeValue] | None
    baggage_attributes: Mapping[str, str] | None
    aux_model: Model | str | None
    name: str | None
    description: str | None
    state: AgentState | dict[str, Any] | None
    context_manager: str | ContextManagerConfig | ContextManager | bool | None
    plugins: Sequence[Plugin] | None
    hooks: list[HookProvider | HookCallback[Any]] | None
    session_manager: SessionManager[Any] | None
    memory_manager: MemoryManager | MemoryManagerConfig | None
    structured_output_prompt: str | None
    tool_executor: ConcurrentToolExecutor | SequentialToolExecutor | None
    retry_strategy: ModelRetryStrategy | None
    concurrent_invocation_mode: ConcurrentInvocationMode
    checkpointing: bool
    sandbox: Sandbox | None
    storage: Storage | None
    background_tasks: bool | BackgroundTasksConfig | None
    interventions: list[InterventionHandler] | None


class HandedOn(SessionSettings, AgentOptions, total=False):
    """What ``MangaMemory.agent_kwargs`` takes beside its own arguments: what a session takes, and what an agent takes."""


class Options(HandedOn, PartsSettings, total=False):
    """What ``MangaMemory.agent`` takes beside its own arguments: what ``agent_kwargs`` takes."""


class _Scope(TypedDict, total=False):
    user_id: Required[str]
    session_id: Required[str]
    agent_id: str
    tenant: str | None
    session: bool


class PartsAsked(_Scope, Options, total=False):
    """The arguments of ``MangaMemory.agent_kwargs``, where its own page says what each means."""


_OF_SESSIONS = tuple(SessionSettings.__annotations__)
_OF_PARTS = tuple(PartsSettings.__annotations__)
_OF_SCOPES = tuple(_Scope.__annotations__)
_OF_AGENTS = tuple(AgentOptions.__annotations__)
OF_STORES = ("hot", "durable", "memories", "create_tables", "sink", "profile", "pii", "environment", "embed", "defaults")
"""The arguments of ``MangaMemory.open`` beside the settings of its sessions."""
_HOMES = (
    (OF_STORES, "MangaMemory.open({}=...)"),
    ((*_OF_SCOPES, *_OF_PARTS, *_OF_AGENTS), "memory.agent(model, ..., {}=...)"),
    (tuple(MangaMemorySettings.model_fields), "defaults=MangaMemorySettings({}=...)"),
)


def check_names(settings: Iterable[str], *, beside: Iterable[str] = ()) -> None:
    """Refuse what is no setting of a ``TieredSessionManager``.

    Args:
        settings: The names.
        beside: Other arguments of the same call, one of which may have been meant.

    Raises:
        ValueError: The message names each, and what is closest.
    """
    _check(settings, _OF_SESSIONS, beside)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is for our parts and the session, and what is for the agent.

    Args:
        options: All of it.

    Raises:
        ValueError: One is for neither; the message names it, and what is closest.
    """
    _check(options, (*_OF_SESSIONS, *_OF_PARTS, *_OF_AGENTS), _OF_SCOPES)
    agent = {name: value for name, value in options.items() if name in _OF_AGENTS}
    return {name: value for name, value in options.items() if name not in _OF_AGENTS}, agent


def merged(ours: Mapping[str, Any], own: Mapping[str, Any]) -> AgentKwargs:
    """Return the arguments of an agent: plugins of both, and else its own in the place of ours."""
    plugins = [*(ours.get("plugins") or ()), *(own.get("plugins") or ())]
    given = {name: value for name, value in own.items() if name != "plugins" and (value is not None or name not in ours)}
    without = {"plugins"} if own.get("context_manager") in (None, False) else {"plugins", "conversation_manager"}
    arguments = {**{name: value for name, value in ours.items() if name not in without}, **given}
    return cast("AgentKwargs", arguments | ({"plugins": plugins} if plugins else {}))


def _check(names: Iterable[str], known: tuple[str, ...], beside: Iterable[str]) -> None:
    problems = [(name, _problem(name, (*beside, *known))) for name in names if name not in known]
    if problems:
        raise SettingsError(problems)


def _problem(name: str, known: tuple[str, ...]) -> str:
    homes = [call.format(name) for names, call in _HOMES if name in names]
    if homes:
        return f"Unknown setting {name!r:.80}. It belongs to {' or '.join(homes)}"
    return unknown_setting(name, known)
