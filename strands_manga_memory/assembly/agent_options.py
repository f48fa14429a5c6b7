"""The keyword arguments of sessions and agents: their types, and a check of their names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Required, TypedDict

from strands.agent.conversation_manager import ConversationManager
from strands.memory import MemoryManager
from strands.plugins import Plugin

from strands_manga_memory import memory, prompt
from strands_manga_memory.assembly.settings import History, MangaMemorySettings, SettingsError
from strands_manga_memory.session import TieredSessionManager, TtlPolicy
from strands_manga_memory.session.basis.tiers import OnConflict, OnStoreError, Refresh, SaveOn
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


class SessionSettings(TypedDict, total=False):
    """The settings of a ``TieredSessionManager``, where its own page says what each means."""

    save_on: SaveOn
    flush_every: int
    ttl: TtlPolicy | None
    on_conflict: OnConflict
    on_store_error: OnStoreError
    refresh: Refresh
    resume_cold: bool
    codec: Codec | None
    hot_deadline: float
    durable_deadline: float
    max_unsaved: int
    clock: Callable[[], float]


class AgentKwargs(TypedDict, total=False):
    """What ``MangaMemory.agent_kwargs`` hands to ``strands.Agent``; a part that was not asked for is not in it."""

    agent_id: str
    conversation_manager: ConversationManager
    session_manager: TieredSessionManager
    memory_manager: MemoryManager
    plugins: list[Plugin]


class HarnessKwargs(TypedDict, total=False):
    """What ``MangaMemory.harness_kwargs`` hands to ``strands_harness.create_harness``."""

    agent_id: str
    context_manager: ContextManager
    session_manager: TieredSessionManager
    memory_manager: MemoryManager


class PartsSettings(TypedDict, total=False):
    """What an agent remembers and is told, where the page of ``MangaMemory.agent_kwargs`` says what each means."""

    history: History | None
    max_tokens: int | None
    trim_to: int | None
    max_turns: int | None
    recall: bool | None
    learn: memory.Learn | None
    task_state: bool | Mapping[str, Any] | None
    instructions: bool | prompt.InstructionFiles
    cache_monitor: prompt.PromptCacheMonitor | None


class PartsAsked(SessionSettings, PartsSettings, total=False):
    """The arguments of ``MangaMemory.agent_kwargs``, where its own page says what each means."""

    user_id: Required[str]
    session_id: Required[str]
    agent_id: str
    tenant: str | None
    session: bool
    plugins: Sequence[Plugin]
    model: Model | None


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
    plugins: list[Plugin] | None
    hooks: list[HookProvider | HookCallback[Any]] | None
    interventions: list[InterventionHandler] | None
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


class Options(SessionSettings, PartsSettings, AgentOptions, total=False):
    """What ``MangaMemory.agent`` takes beside its own arguments: what ``agent_kwargs`` takes, and what an agent takes."""


_OF_SESSIONS = tuple(SessionSettings.__annotations__)
_OF_PARTS = tuple(PartsSettings.__annotations__)
_OF_SCOPES = tuple(name for name in PartsAsked.__annotations__ if name not in (*_OF_SESSIONS, *_OF_PARTS))
_OF_AGENTS = tuple(AgentOptions.__annotations__)


def check_names(settings: Iterable[str], *, beside: Iterable[str] = ()) -> None:
    """Refuse what is no setting of a ``TieredSessionManager``.

    Args:
        settings: The names.
        beside: Other arguments of the same call, one of which may have been meant.

    Raises:
        ValueError: The message names each, and what is closest.
    """
    _check(settings, _OF_SESSIONS, beside)


def check_parts(settings: Iterable[str]) -> None:
    """Refuse what neither ``agent_kwargs`` nor a ``TieredSessionManager`` takes.

    Raises:
        ValueError: The message names each, and the setting that is closest.
    """
    _check(settings, (*_OF_SESSIONS, *_OF_PARTS), _OF_SCOPES)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is for ``agent_kwargs``, and what is for the agent.

    Raises:
        ValueError: One is for neither; the message names it, and what is closest.
    """
    _check(options, (*_OF_SESSIONS, *_OF_PARTS, *_OF_AGENTS), _OF_SCOPES)
    agent = {name: value for name, value in options.items() if name in _OF_AGENTS}
    return {name: value for name, value in options.items() if name not in _OF_AGENTS}, agent


def _check(names: Iterable[str], known: tuple[str, ...], beside: Iterable[str]) -> None:
    problems = [(name, f"is no setting, {_hint(name, (*beside, *known))}") for name in names if name not in known]
    if problems:
        raise SettingsError(problems)


def _hint(name: str, known: tuple[str, ...]) -> str:
    if name in MangaMemorySettings.model_fields:
        return f"it belongs to a process: defaults=MangaMemorySettings({name}=...)"
    close = difflib.get_close_matches(name, known, n=1)
    return f"closest={close[0]}" if close else f"there are {', '.join(known)}"
