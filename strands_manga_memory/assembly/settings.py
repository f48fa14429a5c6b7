"""Settings of a process, as keyword arguments or ``MANGA_MEMORY_*`` environment variables."""

from __future__ import annotations

import difflib
import logging
import os
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from strands_manga_memory.language.pii import DEFAULT_RULES, Action
from strands_manga_memory.memory import RETENTION, MemoryType, PiiPolicy, Retention
from strands_manga_memory.memory.records import DAY
from strands_manga_memory.session.tiers import Refresh
from strands_manga_memory.session.ttl import Mode, Tier, TtlPolicy
from strands_manga_memory.stores import Codec
from strands_manga_memory.stores.urls import NO_USERS, split_url, without_password


@dataclass(frozen=True)
class Unit:
    """Unit of a numeric setting, such as ``seconds``, for the descriptions of accepted values."""

    name: str


@dataclass(frozen=True)
class Words:
    """Description of the values that a setting accepts, for settings whose type does not describe them."""

    takes: str


Seconds = Annotated[float, Unit("seconds")]
Tokens = Annotated[int, Unit("tokens")]
Turns = Annotated[int, Unit("turns")]
Messages = Annotated[int, Unit("messages")]
Failures = Annotated[int, Unit("failures")]
Users = Annotated[int, Unit("users")]

_MOST_DAYS = 36_500.0


def _pairs(names: Collection[str], taken: Callable[[Any], Any], words: str) -> Callable[[object], Mapping[str, Any] | None]:
    """Return a validator that converts a mapping or the text ``name=value,name=value`` to a mapping. None stays None.

    ``names`` are the allowed names. ``taken`` converts each value. For a name, a value or a type that is not allowed,
    the validator raises a ``ValueError`` with the message ``words``.
    """

    def read(given: object) -> Mapping[str, Any] | None:
        if given is None:
            return None
        pairs = [pair.split("=") for pair in given.split(",")] if isinstance(given, str) else given
        try:
            return {_one_of(names, name): taken(value) for name, value in dict(pairs).items()}  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise ValueError(words.replace("`", "")) from None

    return read


def _one_of(names: Collection[str], name: Any) -> str:
    known = str(name).strip()
    if known not in names:
        raise ValueError(known)
    return known


def _days(value: Any) -> float:
    days = float(value)
    if not 0 < days <= _MOST_DAYS:
        raise ValueError(days)
    return days


_RULES = tuple(dict.fromkeys(rule.name for rule in DEFAULT_RULES))
_ACTIONS = get_args(Action)
_KEPT = tuple(type_.value for type_ in MemoryType if type_ is not MemoryType.PREFERENCE)

_PII = f"`rule=action,...`, with a rule of {', '.join(_RULES)} and an action of {', '.join(_ACTIONS)}"
_RETENTION = f"`type=days,...`, with a type of {', '.join(_KEPT)} and over 0 to {_MOST_DAYS:,.0f} days"

PiiActions = Annotated[
    Mapping[str, Action], BeforeValidator(_pairs(_RULES, lambda value: _one_of(_ACTIONS, value), _PII)), Words(_PII)
]
RetentionDays = Annotated[Mapping[str, float], BeforeValidator(_pairs(_KEPT, _days, _RETENTION)), Words(_RETENTION)]


logger = logging.getLogger(__name__)

PREFIX = "MANGA_MEMORY_"
"""Prefix of the names of the environment variables."""

History = Literal["importance", "summarize", "compact"]
"""Method that limits an agent's history."""


_HOT_SCHEMES = (
    "memory",
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
_DURABLE_SCHEMES = ("sqlite", "dynamodb", "postgresql", "postgres")


_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
"""Texts that environment variables accept for booleans. Keyword arguments accept only True and False."""


class SettingsError(ValueError):
    """Error for settings that are not allowed. The message names the argument or environment variable of each setting.

    Args:
        problems: Name and problem of each setting. The problem is a phrase that follows the name in the message, or a sentence
            that already contains the name.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(what if what[:1].isupper() else f"{name:.80} {what}" for name, what in problems))
        self.problems = problems


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown setting, which suggests the closest known name."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}"
    return f"Unknown setting {name!r:.80}. {hint}"


class MangaMemorySettings(BaseModel):
    """Settings of a process, for ``MangaMemory.from_settings`` and ``MangaMemory.from_env``.

    Each setting is also an environment variable, such as ``MANGA_MEMORY_FLUSH_EVERY=10``: ``MANGA_MEMORY_`` and the
    setting's name in capitals. Booleans are written ``true`` or ``false``. An empty variable counts as unset.

    Raises:
        ValueError: A value is not allowed. The message names the setting and the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hot_url: str = Field("memory://", description="Hot tier, as `open_hot_store` takes it; `memory://` is this process")
    durable_url: str = Field(
        "sqlite:///.manga_memory/sessions.sqlite3",
        description="Durable tier, as `open_table` takes it; by default a SQLite file",
    )
    users_url: str | None = Field(
        None,
        description="User memory, as `open_table` takes it; `true`: next to the durable tier; unset, `none`: no user memory",
    )
    create_tables: bool = Field(
        default=True, strict=True, description="Create missing tables and their TTL setting when they are opened"
    )
    flush_every: Turns = Field(5, ge=1, le=1000, description="Turns between flushes to the durable tier")
    refresh: Refresh = Field("never", description="Whether each turn first reads changes of other devices")
    hot_deadline: Seconds = Field(0.05, gt=0, le=60, description="Longest wait of a turn for the hot tier")
    durable_deadline: Seconds = Field(
        2.0, gt=0, le=60, description="Longest wait of a turn for the durable tier, if no other survives the process"
    )
    profile_deadline: Seconds = Field(0.25, gt=0, le=60, description="Longest wait of an agent's start for a profile")
    max_unsaved: Messages = Field(10_000, ge=1, le=1_000_000, description="Unsaved messages from which turns are refused")
    ttl_tier: Tier = Field("standard", description="User tier, from which the TTL is derived in the mode `hybrid`")
    ttl_mode: Mode = Field("hybrid", description="How the TTL is determined, and when it is renewed")
    ttl_seconds: Seconds | None = Field(None, gt=0, le=31_536_000, description="TTL in the hot tier; unset: by tier and mode")
    session_ttl: Seconds = Field(86_400.0, gt=0, le=31_536_000, description="Time after the last use at which a session ends")
    ttl_grace: Seconds = Field(3_600.0, ge=3600, le=31_536_000, description="Time that stores keep data beyond its expiry")
    history: History = Field("importance", description="Method that limits the history, unless set in `agent_kwargs`")
    max_tokens: Tokens | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Budget of the history; unset: a quarter of the model's window, at most 16,384; "
        "with summaries at most 4,096, as for an unknown window",
    )
    trim_to: Tokens | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Tokens to which a full history is reduced; unset: leaves space for seven turns",
    )
    max_turns: Turns | None = Field(None, ge=1, le=10_000, description="Most turns of a history; unset: as many as fit")
    summary_trigger_tokens: Tokens | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Tokens of history that trigger a summary; unset: about twice its budget, at most half the model's window",
    )
    summary_trigger_turns: Turns = Field(20, ge=1, le=10_000, description="Turns since the last summary that trigger one")
    summary_keep_turns: Turns = Field(3, ge=1, le=1000, description="Last turns that a summary does not replace")
    recall: bool = Field(
        default=False, strict=True, description="Whether agents quote evicted messages, unless set in `agent_kwargs`"
    )
    recall_tokens: Tokens | None = Field(
        None, ge=1, le=10_000_000, description="Tokens reserved for quotes; unset: 1,024, at most a quarter of the history's"
    )
    task_state: bool = Field(
        default=False, strict=True, description="Whether agents track the task, unless set in `agent_kwargs`"
    )
    pii_actions: PiiActions | None = Field(
        None, description="Treatment of personal data in memories; unset: `redact`; `encrypt` needs a codec with a cipher"
    )
    retention_days: RetentionDays | None = Field(
        None, description="Days that memories are stored, by type; unset: 90; facts, feedback 180, patterns 30, questions 7"
    )
    breaker_failures: Failures = Field(5, ge=1, le=1000, description="Consecutive failures that open a tool's breaker")
    breaker_reset_after: Seconds = Field(30.0, gt=0, le=600, description="Time that a breaker stays open")
    breaker_users: Users = Field(2, ge=1, le=1000, description="Users who must get errors of a tool before its breaker opens")
    breaker_timeout: Seconds = Field(2.0, gt=0, le=3600, description="Longest call of a guarded tool")
    telemetry: bool = Field(default=True, strict=True, description="Whether OpenTelemetry and `stats()` receive data")

    @field_validator("hot_url", "durable_url", "users_url")
    @classmethod
    def _is_known(cls, value: str | None, info: Any) -> str | None:
        schemes = _HOT_SCHEMES if info.field_name == "hot_url" else _DURABLE_SCHEMES
        if value is None or (info.field_name == "users_url" and value.lower() in ("true", NO_USERS)):
            return value
        if split_url(value).scheme not in schemes:
            raise ValueError(f"a URL, accepted are {', '.join(f'{scheme}://' for scheme in schemes)}")
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError([_problem(each) for each in error.errors()]) from None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the names and values for ``repr``, URLs without passwords."""
        for name, value in super().__repr_args__():
            yield name, without_password(value) if isinstance(value, str) else value

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **values: Any) -> MangaMemorySettings:
        """Return the settings from environment variables.

        Args:
            environ: The environment variables. Default: those of the process.
            values: Settings, keyed by name, which replace those of the variables.

        Raises:
            ValueError: A value is not allowed. The message names its variable and the allowed values.
        """
        environ = os.environ if environ is None else environ
        given: dict[str, Any] = {name: environ[variable(name)] for name in cls.model_fields if environ.get(variable(name))}
        given |= {
            name: _TRUTH.get(text.lower(), text) for name, text in given.items() if cls.model_fields[name].annotation is bool
        }
        for name in sorted(environ):
            if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in cls.model_fields:
                close = difflib.get_close_matches(name, map(variable, cls.model_fields), n=1)
                logger.warning("variable=<%s>, closest=<%s> | there is no such setting", name, *close or ["none"])
        try:
            return cls(**{**given, **values})
        except SettingsError as error:
            problems = [(name if name in values else variable(name), what) for name, what in error.problems]
            raise SettingsError(problems) from None

    def over(self, **asked: Any) -> MangaMemorySettings:
        """Return a copy of these settings with the values in ``asked``. A value None in ``asked`` leaves its setting unchanged.

        Raises:
            ValueError: A value is not allowed. The message names the setting and the allowed values.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        return MangaMemorySettings(**{**{name: getattr(self, name) for name in self.model_fields_set}, **given})

    def pii_policy(self, codec: Codec | None) -> PiiPolicy:
        """Return the policy for personal data in memories, which encrypts with the cipher of ``codec``.

        Raises:
            ValueError: A setting demands encryption, and there is no cipher.
        """
        return PiiPolicy(actions=self.pii_actions, cipher=None if codec is None else codec.cipher)

    def retention(self) -> Mapping[MemoryType, Retention]:
        """Return the retention of memories, keyed by type of memory."""
        days = self.retention_days or {}
        return {
            **RETENTION,
            **{MemoryType(type_): replace(RETENTION[MemoryType(type_)], seconds=kept * DAY) for type_, kept in days.items()},
        }

    def ttl_policy(self) -> TtlPolicy:
        """Return the time-to-live policy from the settings."""
        return TtlPolicy(self.ttl_tier, self.ttl_mode, seconds=self.ttl_seconds, session=self.session_ttl, grace=self.ttl_grace)

    def open_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``MangaMemory.open``."""
        users = self.users_url
        names = ("create_tables", "flush_every", "refresh", "hot_deadline", "durable_deadline", "max_unsaved")
        return {
            "hot": self.hot_url,
            "durable": self.durable_url,
            "memories": users if users is None else {"true": True, NO_USERS: False}.get(users.lower(), users),
            "defaults": self,
            "ttl": self.ttl_policy(),
            **{name: getattr(self, name) for name in names},
        }


def variable(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return PREFIX + name.upper()


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return name, environment variable, default, accepted values and meaning of each setting."""
    return [
        (
            name,
            variable(name),
            _written(field.default),
            takes(name),
            str(field.description),
        )
        for name, field in MangaMemorySettings.model_fields.items()
    ]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def markdown() -> str:
    """Return a Markdown table of all settings, for the guide page about settings."""
    head = "| variable | default | takes | meaning |\n|---|---|---|---|\n"
    return head + "".join(f"| `{var}` | `{default}` | {what} | {why} |\n" for _, var, default, what, why in rows())


def takes(name: str) -> str:
    """Return a description of the values that a setting accepts."""
    field = MangaMemorySettings.model_fields[name]
    kinds = [kind for kind in _members(field.annotation) if kind is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kinds[0]))
    if kinds[0] is bool:
        return "`true` or `false`"
    if kinds[0] is str:
        return "a URL"
    for entry in _metadata(name):
        if isinstance(entry, Words):
            return entry.takes
    unit = next((entry.name for entry in _metadata(name) if isinstance(entry, Unit)), "")
    bounds = {kind: getattr(entry, kind) for entry in _metadata(name) for kind in ("gt", "ge", "le") if hasattr(entry, kind)}
    low = f"over {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g}"
    return f"{low} to {bounds['le']:,g} {unit}" if bounds["le"] < 1e6 else f"{low} to {bounds['le']:,.0f} {unit}"


def _metadata(name: str) -> list[Any]:
    field = MangaMemorySettings.model_fields[name]
    return [*field.metadata, *(entry for kind in get_args(field.annotation) for entry in getattr(kind, "__metadata__", ()))]


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for kind in get_args(annotation) for member in _members(kind)]
    return [getattr(annotation, "__origin__", annotation)] if hasattr(annotation, "__metadata__") else [annotation]


def _problem(error: Any) -> tuple[str, str]:
    name = str(error["loc"][0])
    if name not in MangaMemorySettings.model_fields:
        return name, unknown_setting(name, MangaMemorySettings.model_fields)
    what = str(error["ctx"]["error"]) if "error" in error.get("ctx", {}) else takes(name).replace("`", "")
    return name, f"must be {what}, got {without_password(str(error['input']))!r:.200}"
