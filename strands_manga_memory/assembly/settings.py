"""Settings of a process, as keyword arguments or ``MANGA_MEMORY_*`` environment variables."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from strands_manga_memory.arguments import unknown_setting_text
from strands_manga_memory.language.pii import DEFAULT_RULES, Action
from strands_manga_memory.memory import RETENTION, MemoryType, PiiPolicy, Retention
from strands_manga_memory.memory.records import DAY
from strands_manga_memory.session.tiers import Refresh
from strands_manga_memory.session.ttl import Mode, Tier, TtlPolicy
from strands_manga_memory.stores import Codec
from strands_manga_memory.stores.urls import without_password

if TYPE_CHECKING:
    from strands_manga_memory.mcp import BreakerPolicy

logger = logging.getLogger(__name__)

PREFIX = "MANGA_MEMORY_"
"""Prefix of the names of the environment variables."""

History = Literal["importance", "summarize", "compact"]
"""Method that limits an agent's window."""

_Strategy = Literal["background", "async", "inline"]

_HOT_SCHEMES = ("memory", "redis", "rediss", "redis+cluster", "rediss+cluster")
_DURABLE_SCHEMES = ("sqlite", "dynamodb", "postgresql", "postgres")
_TRUTH = dict.fromkeys(("true", "1", "yes", "on"), True)
_TRUTH |= dict.fromkeys(("false", "0", "no", "off"), False)
"""Texts that environment variables accept for booleans.
Keyword arguments accept only True and False.
"""

_USERS = {"true": True, "none": False}
"""Argument ``memories`` of ``MangaMemory``, keyed by value of ``users_url`` that is no URL."""

_MOST_DAYS = 36_500.0
_RULES = tuple(dict.fromkeys(rule.name for rule in DEFAULT_RULES))
_KEPT = tuple(type_.value for type_ in MemoryType if type_ is not MemoryType.PREFERENCE)
_Rule = Annotated[str, Field(pattern=f"^({'|'.join(_RULES)})$")]
_Kept = Annotated[str, Field(pattern=f"^({'|'.join(_KEPT)})$")]
_Days = Annotated[float, Field(gt=0, le=_MOST_DAYS)]
_PII = (
    f"`rule=action,...`, with a rule of {', '.join(_RULES)} and an action of"
    f" {', '.join(get_args(Action))}"
)
_RETENTION = (
    f"`type=days,...`, with a type of {', '.join(_KEPT)} and over 0 to {_MOST_DAYS:,.0f} days"
)


def _field(default: Any, takes: str, description: str, **checks: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"takes": takes}, **checks)


def _number(
    default: float | None, unit: str, description: str, *, most: float, least: float = 1
) -> Any:
    takes = f"{least:g} to {most:,.12g} {unit}"
    return _field(default, takes, description, ge=least, le=most)


def _seconds(default: float | None, description: str, *, most: float) -> Any:
    return _field(default, f"over 0 to {most:,.12g} seconds", description, gt=0, le=most)


def _tokens(description: str) -> Any:
    return _number(None, "tokens", description, most=10_000_000)


def _switch(description: str, *, default: bool) -> Any:
    return _field(default, "`true` or `false`", description, strict=True)


class SettingsError(ValueError):
    """Error for settings that have an unknown name or a value that is not allowed.

    Args:
        problems: Pairs of a setting's name and its problem. A problem is a phrase that follows the
            name, such as ``must be a URL``, or a sentence that begins with a capital.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        texts = (what if what[:1].isupper() else f"{name:.80} {what}" for name, what in problems)
        super().__init__("; ".join(texts))
        self.problems = problems


class MangaMemorySettings(BaseModel):
    """Settings of a process, for ``MangaMemory.open(defaults=...)`` and ``MangaMemory.from_env``.

    Each setting is also an environment variable, such as ``MANGA_MEMORY_FLUSH_EVERY=10``:
    ``MANGA_MEMORY_`` and the setting's name in capitals. Only ``from_env`` reads the variables.
    Booleans are written ``true`` or ``false``. An empty variable counts as unset.

    Raises:
        ValueError: A value is not allowed. The message names the setting and the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hot_url: str = _field(
        "memory://", "a URL", "Hot tier, as `open_hot_store` takes it; `memory://` is this process"
    )
    durable_url: str = _field(
        "sqlite:///.manga_memory/sessions.sqlite3",
        "a URL",
        "Durable tier, as `open_table` takes it; by default a SQLite file",
    )
    users_url: str | None = _field(
        None,
        "a URL, `true` or `none`",
        "User memory, as `open_table` takes it; `true`: next to the durable tier; unset, `none`: no"
        " user memory",
    )
    create_tables: bool = _switch(
        "Create missing tables and their TTL setting when they are opened", default=True
    )
    flush_every: int = _number(5, "turns", "Turns between flushes to the durable tier", most=1000)
    refresh: Refresh = Field(
        "never", description="Whether each turn first reads changes of other devices"
    )
    hot_deadline: float = _seconds(0.05, "Longest wait of a turn for the hot tier", most=60)
    durable_deadline: float = _seconds(
        2.0,
        "Longest wait of a turn for the durable tier; a turn waits for it only without Redis or"
        " Valkey",
        most=60,
    )
    profile_deadline: float = _seconds(
        0.25, "Longest wait for a profile or an environment source", most=60
    )
    max_unsaved: int = _number(
        10_000, "messages", "Unsaved messages from which turns are refused", most=1_000_000
    )
    ttl_tier: Tier = Field(
        "standard", description="User tier, from which the TTL is derived in the mode `hybrid`"
    )
    ttl_mode: Mode = Field(
        "hybrid", description="How the TTL is determined, and when it is renewed"
    )
    ttl_seconds: float | None = _seconds(
        None, "TTL in the hot tier; unset: by tier and mode", most=31_536_000
    )
    session_ttl: float = _seconds(
        86_400.0,
        "Time after the last use at which a session ends",
        most=31_536_000,
    )
    ttl_grace: float = _number(
        3_600.0,
        "seconds",
        "Time that stores keep data beyond its expiry",
        least=3600,
        most=31_536_000,
    )
    history: History = Field(
        "importance", description="Method that limits the window, unless set in `memory.agent`"
    )
    max_tokens: int | None = _tokens(
        "Budget of the window; unset: a quarter of the context window, at most 16,384. With"
        " summaries: at most 4,096. If the model does not state its window: 4,096"
    )
    trim_every: int = _number(
        7,
        "turns",
        "When a full window is trimmed, room is made for about this many further turns, so that not"
        " every turn trims; 0: none",
        least=0,
        most=1000,
    )
    max_turns: int | None = _number(
        None, "turns", "Most turns of a window; unset: as many as fit", most=10_000
    )
    summary_trigger_tokens: int | None = _tokens(
        "Tokens of the window that trigger a summary; unset: about twice its budget, at most half"
        " the context window"
    )
    summary_trigger_turns: int = _number(
        20, "turns", "Turns since the last summary that trigger one", most=10_000
    )
    summary_keep_turns: int = _number(
        3, "turns", "Last turns that a summary does not replace", most=1000
    )
    summary_tokens: int = _number(
        500,
        "tokens",
        "Most tokens of a summary, at most a quarter of the window's budget",
        most=2_000,
    )
    summary_strategy: _Strategy = Field(
        "background",
        description="Waiting for a due summary: not at all, in the next model call, or at the end"
        " of the turn",
    )
    summary_warn_share: float = _field(
        0.75,
        "over 0 to 1 (share)",
        "Share of the tokens at which a summary is due, from which a warning is logged",
        gt=0,
        le=1,
    )
    summary_cache_hours: float = _number(
        24.0,
        "hours",
        "Time that encrypted drafts of summaries are cached in the hot tier, with the extra"
        " `encryption`; 0: not at all",
        least=0,
        most=8_760,
    )
    summary_model: str | None = _field(
        None,
        "a Bedrock model id",
        "Model that writes summaries and extracts preferences, as `aux_model` of agents without"
        " one; unset: the agent's model writes summaries",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$",
    )
    summary_temperature: float = _number(
        0.1, "(temperature)", "Temperature of `summary_model`", least=0, most=1
    )
    recall: bool = _switch(
        "Whether agents quote evicted messages, unless set in `memory.agent`", default=False
    )
    recall_tokens: int | None = _tokens(
        "Tokens reserved for quotes; unset: 1,024, at most a quarter of the window's"
    )
    task_state: bool = _switch(
        "Whether agents track the task, unless set in `memory.agent`", default=False
    )
    goal_tokens: int = _number(
        12_000,
        "tokens",
        "Most tokens of an agent's goals, archived ones included",
        least=100,
        most=1_000_000,
    )
    goal_warn_tokens: int = _number(
        10_000, "tokens", "Tokens of all goals that cause a warning", most=1_000_000
    )
    goal_archive_tokens: int = _number(
        6_000, "tokens", "Most tokens of archived goals", most=1_000_000
    )
    goals_kept: int = _number(
        10, "goals", "Most archived goals; 0: goals that end are not archived", least=0, most=1000
    )
    executions_kept: int = _number(
        20, "calls", "Last tool calls of a goal that are kept one by one", most=1000
    )
    failed_subtasks_kept: int = _number(
        5, "subtasks", "Failed subtasks in the record of an archived goal", most=50
    )
    goal_context_characters: int = _number(
        2_000, "characters", "Most characters of a goal's context", most=100_000
    )
    steps_kept: int = _number(100, "steps", "Most steps of a task, such as tool calls", most=10_000)
    pii_actions: dict[_Rule, Action] | None = _field(
        None,
        _PII,
        "Treatment of personal data in memories; unset: `redact`; `encrypt` needs a codec with a"
        " cipher",
    )
    retention_days: dict[_Kept, _Days] | None = _field(
        None,
        _RETENTION,
        "Days for which memories are stored, by type; unset: facts and feedback 180, weekly rollups"
        " 45, patterns 30, questions 7, all others 90",
    )
    breaker_failures: int = _number(
        5, "failures", "Consecutive failures that open a tool's breaker", most=1000
    )
    breaker_reset_after: float = _seconds(30.0, "Time that a breaker stays open", most=600)
    breaker_users: int = _number(
        2,
        "users",
        "Users whose errors open a tool's breaker; if fewer have called the tool, all of them",
        most=1000,
    )
    breaker_timeout: float = _seconds(2.0, "Longest call of a guarded tool", most=3600)
    telemetry: bool = _switch(
        "Whether OpenTelemetry and `stats()['operations']` receive data", default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check(cls, value: Any, info: Any) -> Any:
        name = info.field_name
        if isinstance(value, bool) and cls.model_fields[name].annotation is not bool:
            raise ValueError(accepted_values(name))
        if not isinstance(value, str):
            return value
        if name in ("pii_actions", "retention_days"):
            pairs = (map(str.strip, pair.split("=")) for pair in value.split(","))
            return dict(pairs)  # type: ignore[arg-type]
        if name.endswith("_url") and not (name == "users_url" and value.lower() in _USERS):
            schemes = _HOT_SCHEMES if name == "hot_url" else _DURABLE_SCHEMES
            if value.partition("://")[0].lower() not in schemes:
                urls = ", ".join(f"{scheme}://" for scheme in schemes)
                raise ValueError(f"{accepted_values(name)}, accepted are {urls}")
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            found = {str(each["loc"][0]): each for each in error.errors()}
            raise SettingsError(
                [(name, _problem(name, each, values[name])) for name, each in found.items()]
            ) from None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the names and values for ``repr``, in which URLs have no passwords."""
        for name, value in super().__repr_args__():
            yield name, without_password(value) if isinstance(value, str) else value

    @classmethod
    def from_env(cls, **values: Any) -> MangaMemorySettings:
        """Return settings with values from environment variables, such as ``MANGA_MEMORY_HOT_URL``.

        ``values`` are settings that take precedence over the variables.

        Raises:
            ValueError: A value is not allowed. The message names its variable and the allowed
                values.
        """
        # It takes a third of the facade's import, and its constructor 50 times that of a plain
        # model: only here.
        from pydantic_settings import EnvSettingsSource

        settings: Any = cls
        source = EnvSettingsSource(settings, env_prefix=PREFIX, env_ignore_empty=True)
        source.config = {**source.config, "enable_decoding": False}  # mappings are pairs, not JSON
        given = source()
        given |= {
            name: _TRUTH.get(text.lower(), text)
            for name, text in given.items()
            if cls.model_fields[name].annotation is bool
        }
        for name in sorted(os.environ):
            prefix, setting = name[: len(PREFIX)].upper(), name[len(PREFIX) :].lower()
            if prefix == PREFIX and setting not in cls.model_fields:
                close = difflib.get_close_matches(name, map(variable_name, cls.model_fields), n=1)
                logger.warning(
                    "variable=<%s>, closest=<%s> | there is no such setting",
                    name,
                    *close or ["none"],
                )
        try:
            return cls(**{**given, **values})
        except SettingsError as error:
            problems = [
                (name if name in values else variable_name(name), what)
                for name, what in error.problems
            ]
            raise SettingsError(problems) from None

    def with_values(self, **values: Any) -> MangaMemorySettings:
        """Return a copy of these settings with new values. None keeps the old value.

        Raises:
            ValueError: A value is not allowed. The message names the setting and the allowed
                values.
        """
        given = {name: value for name, value in values.items() if value is not None}
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return MangaMemorySettings(**{**own, **given})

    def pii_policy(self, codec: Codec | None) -> PiiPolicy:
        """Return the policy for personal data in memories, with the cipher of ``codec``.

        Raises:
            ValueError: A setting demands encryption, and there is no cipher.
        """
        return PiiPolicy(actions=self.pii_actions, cipher=None if codec is None else codec.cipher)

    def retention(self) -> Mapping[MemoryType, Retention]:
        """Return storage times and ranking values of users' memories, keyed by type of memory.

        The setting ``retention_days`` replaces default storage times.
        """
        retention = dict(RETENTION)
        for name, days in (self.retention_days or {}).items():
            type_ = MemoryType(name)
            retention[type_] = replace(RETENTION[type_], seconds=days * DAY)
        return retention

    def ttl_policy(self) -> TtlPolicy:
        """Return the time-to-live policy of conversations from these settings."""
        return TtlPolicy(
            self.ttl_tier,
            self.ttl_mode,
            seconds=self.ttl_seconds,
            session=self.session_ttl,
            grace=self.ttl_grace,
        )

    def breaker_policy(self) -> BreakerPolicy:
        """Return the policy of the circuit breakers of MCP tools from these settings."""
        from strands_manga_memory.mcp import BreakerPolicy  # imported only for guarded tools

        return BreakerPolicy(
            self.breaker_failures,
            self.breaker_reset_after,
            self.breaker_timeout,
            users=self.breaker_users,
        )

    def memory_table(self) -> str | bool | None:
        """Return the argument ``memories`` of ``MangaMemory`` from the setting ``users_url``.

        The result is the URL of the table, True for the default table, False for no table, or None
        if the setting is not set.
        """
        users = self.users_url
        return users if users is None else _USERS.get(users.lower(), users)

    def session_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for a ``TieredSessionManager`` from these settings."""
        names = ("flush_every", "refresh", "hot_deadline", "durable_deadline", "max_unsaved")
        return {"ttl": self.ttl_policy(), **{name: getattr(self, name) for name in names}}

    def agent_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``strands.Agent`` that these settings set.

        With the setting ``summary_model``, the result is ``{"aux_model": model}``, the model for
        summaries. Otherwise, it is empty.
        """
        if self.summary_model is None:
            return {}
        from strands.models import BedrockModel  # imported only for a summary model

        model = BedrockModel(model_id=self.summary_model, temperature=self.summary_temperature)
        return {"aux_model": model}


def variable_name(name: str) -> str:
    """Return the environment variable of a setting, such as ``MANGA_MEMORY_HOT_URL``."""
    return PREFIX + name.upper()


def setting_rows() -> list[tuple[str, str, str, str, str]]:
    """Return the table of all settings, with one row for each setting.

    A row has the setting's name, environment variable, default, accepted values and meaning.
    """
    return [
        (
            name,
            variable_name(name),
            _written(field.default),
            accepted_values(name),
            str(field.description),
        )
        for name, field in MangaMemorySettings.model_fields.items()
    ]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def accepted_values(name: str) -> str:
    """Return a description of the accepted values of a setting, such as ``a URL``."""
    field = MangaMemorySettings.model_fields[name]
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["takes"])
    return " or ".join(f"`{value}`" for value in get_args(field.annotation))


def _problem(name: str, error: Any, given: object) -> str:
    if name not in MangaMemorySettings.model_fields:
        return unknown_setting_text(name, MangaMemorySettings.model_fields)
    is_unknown_url = name.endswith("_url") and error["type"] == "value_error"
    what = str(error["ctx"]["error"]) if is_unknown_url else accepted_values(name)
    what = what.replace("`", "")
    return f"must be {what}, got {without_password(str(given))!r:.200}"
