"""Every public constructor and function names an argument of a wrong type."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import redis
from strands.tools.mcp import MCPClient

import strands_manga_memory as package
from strands_manga_memory import (
    SESSIONS,
    USER_MEMORY,
    AesGcmCipher,
    Codec,
    InMemoryHotStore,
    MangaMemory,
    SQLiteTable,
    StateCoordinator,
)
from strands_manga_memory.memory import (
    CallablePreferenceSink,
    PreferenceOutbox,
    TablePreferenceSink,
    TableProfileSource,
)
from strands_manga_memory.user_data import export_user, forget_user

PUBLIC = [
    name
    for name in package.__all__
    if callable(getattr(package, name))
    and not getattr(getattr(package, name), "_is_protocol", False)
    and not (
        inspect.isclass(getattr(package, name)) and issubclass(getattr(package, name), Exception)
    )
]
ANY_VALUE = {
    "guard_tool.tool",
    "Environment.cart",
    "Environment.promotions",
    "Environment.cart_total",
}
"""Arguments that also take values of other types: tools of every kind, and values of services,
which are shown as text.
"""
SECRETS = {"keys", "cipher", "codec", "memory_codec"}
"""Arguments whose values are not shown, because they may be secret keys."""


class Wrong:
    """Value that no argument takes."""

    def __repr__(self) -> str:
        return "Wrong()"


def required(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return valid values of the arguments that a call must have, keyed by name."""
    hot, durable = InMemoryHotStore(), SQLiteTable(tmp_path / "s.db", SESSIONS)
    users = SQLiteTable(tmp_path / "u.sqlite3", USER_MEMORY)
    tiers = {"hot": hot, "durable": durable}
    credentials = {
        "region_name": "us-east-1",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
    }
    return {
        "AesGcmCipher": {"keys": {"a": b"0" * 32}, "current": "a"},
        "ConversationScope": {"user_id": "u", "session_id": "s"},
        "DialogueSlot": {"name": "volume"},
        "DynamoDBTable": {"client": boto3.client("dynamodb", **credentials)},
        "GuardedMCPTools": {"client": MCPClient(lambda: Wrong())},
        "MangaMemory": tiers,
        "RedisHotStore": {"client": redis.Redis(port=1)},
        "SQLiteTable": {"path": tmp_path / "x.sqlite3"},
        "SessionFinalizer": {**tiers, "memories": users},
        "SessionSweeper": tiers,
        "StateCoordinator": {"hot": hot, "scope": package.ConversationScope("u", "s")},
        "TieredSessionManager": {"session_id": "s", **tiers},
        "TieredStorage": {"user_id": "u", **tiers},
        "UserMemoryStore": {"table": users, "user_id": "u"},
        "guard_tool": {"tool": Wrong()},
    }


def wrong_values(annotation: str) -> Iterator[Any]:
    """Yield values that an annotation does not allow."""
    yield Wrong()
    if not re.search(r"\b(?:int|float|Count|Share|Positive\w*|\w*Seconds)\b", annotation):
        yield 5
    if not re.search(r"\b(?:str|Text)\b", annotation):
        yield "text"
    if not re.search(r"\bbool\b", annotation):
        yield True


@pytest.mark.parametrize("name", PUBLIC)
def test_wrong_type_is_refused_with_name_and_value(name: str, tmp_path: Path) -> None:
    call = getattr(package, name)
    given = required(tmp_path).get(name, {})
    parameters = {
        each: parameter
        for each, parameter in inspect.signature(call).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and f"{name}.{each}" not in ANY_VALUE
    }
    accepted = []
    for argument, parameter in parameters.items():
        for value in wrong_values(str(parameter.annotation)):
            try:
                call(**{**given, argument: value})
            except ValueError as error:
                text = str(error)
                assert argument in text, (argument, value, text)
                shown = f"type {type(value).__name__}" if argument in SECRETS else f"{value!r}"
                assert shown in text or f"'{value}'" in text, (argument, value, text)
            else:
                accepted.append((argument, value))
    assert not accepted


@pytest.mark.parametrize(
    "name", [name for name in PUBLIC if name not in ("DialogueSlot", "Environment")]
)
def test_unknown_argument_is_refused_with_the_closest_name(name: str, tmp_path: Path) -> None:
    """``DialogueSlot`` and ``Environment`` accept fields of later releases."""
    call = getattr(package, name)
    known = max(inspect.signature(call).parameters, key=len)
    given = {**required(tmp_path).get(name, {}), f"{known}x": 1}
    with pytest.raises(
        (TypeError, ValueError), match=rf"Unknown setting '{known}x'\. Did you mean '{known}'\?"
    ):
        call(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_tokens": True}, "max_tokens must be a whole number or None, got True"),
        ({"max_tokens": "4096"}, "max_tokens must be a whole number or None, got '4096'"),
        ({"plugins": "x"}, "plugins must be a list of plugins, got 'x'"),
        ({"agent_id": 5}, "agent_id must be a text or None, got 5"),
    ],
)
def test_wrong_agent_argument_fails(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with (
        MangaMemory(durable=f"sqlite:///{tmp_path}/s.db") as memory,
        pytest.raises(ValueError, match=f"^{re.escape(message)}"),
    ):
        memory.agent(**{"user_id": "u", "session_id": "s", **given})


def test_plugins_of_an_agent_may_be_a_tuple(tmp_path: Path) -> None:
    with MangaMemory(durable=f"sqlite:///{tmp_path}/s.db") as memory:
        plugin = StateCoordinator()
        assert (
            plugin in memory.agent_kwargs(user_id="u", session_id="s", plugins=(plugin,))["plugins"]
        )


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("hot_url", "a URL"),
        ("users_url", "a URL, true or none"),
        ("flush_every", "1 to 1,000 turns"),
    ],
)
def test_setting_refuses_true_with_the_allowed_values(name: str, allowed: str) -> None:
    wrong: Any = {name: True}
    with pytest.raises(package.SettingsError, match=f"^{name} must be {allowed}, got 'True'$"):
        package.MangaMemorySettings(**wrong)


def test_model_of_finalizing_is_a_model_or_a_summarizer(tmp_path: Path) -> None:
    with MangaMemory(durable=f"sqlite:///{tmp_path}/s.db", memories=True) as memory:
        wrong: Any = 3
        with pytest.raises(
            ValueError, match="model must be a Strands model or SessionSummarizer or None, got 3"
        ):
            memory.finalize(package.ConversationScope("u", "s"), model=wrong)


def test_items_of_collections_are_checked() -> None:
    wrong: Any = {"buy": ["volume"]}
    with pytest.raises(
        ValueError, match=r"intents\['buy'\]\[0\] must be DialogueSlot, got 'volume'"
    ):
        StateCoordinator(intents=wrong)
    with pytest.raises(ValueError, match=r"rules must be .*, got 'card'"):
        package.PiiPolicy(rules="card")


@pytest.mark.parametrize("keys", [{"k1": "s3cret"}, {5: b"s3cret"}, b"s3cret", [b"s3cret"]])
def test_secret_keys_are_not_shown_in_errors(keys: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^keys(\['k1'\])? must be .*, got a value of type \w+$"
    ) as of_keys:
        AesGcmCipher(keys, current="k1")
    with pytest.raises(
        ValueError, match="cipher must be Cipher or None, got a value of type "
    ) as of_cipher:
        Codec(cipher=keys)
    assert "s3cret" not in f"{of_keys.value} {of_cipher.value}"


def test_values_of_related_types_are_accepted(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    package.InstructionFiles(
        (folder for folder in [tmp_path]), allow={tmp_path: "folders may be the keys of a mapping"}
    )
    assert package.RedisHotStore(redis.Redis(port=1), deadline=np.float32(0.5), grace=np.int64(60))
    assert Codec(compress_from=np.int64(64))


class Reader:
    """Object with one method of a table and one of a hot store."""

    def get(self, partition: str, sort: str) -> None: ...

    def load(self, conversation: str) -> None: ...


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda wrong: MangaMemory(durable=wrong), "durable"),
        (lambda wrong: MangaMemory(hot=wrong), "hot"),
        (lambda wrong: package.TieredSessionManager("s", durable=wrong), "durable"),
        (lambda wrong: package.UserMemoryStore(wrong, user_id="u"), "table"),
        (lambda wrong: TableProfileSource(wrong), "table"),
        (lambda wrong: TablePreferenceSink(wrong), "table"),
        (lambda wrong: PreferenceOutbox(wrong, CallablePreferenceSink(print)), "table"),
        (lambda wrong: PreferenceOutbox(SQLiteTable("unused", USER_MEMORY), wrong), "sink"),
        (lambda wrong: export_user("u", hot=None, durable=wrong, memories=False), "durable"),
        (
            lambda wrong: forget_user(
                "u", hot=wrong, durable=SQLiteTable("unused"), memories=False
            ),
            "hot",
        ),
    ],
)
def test_object_without_some_methods_is_refused_with_its_class_and_the_methods(
    call: Any, argument: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"^{argument} must be .* of the class Reader, which lacks \w+"
    ):
        call(Reader())


@pytest.mark.parametrize(
    "call", [lambda: SQLiteTable("x\0y"), lambda: package.open_table("sqlite:///x%00y")]
)
def test_path_with_a_nul_character_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match="path must have no NUL character"):
        call()


def test_false_fits_an_argument_that_may_be_false(tmp_path: Path) -> None:
    table = SQLiteTable(tmp_path / "s.db", SESSIONS)
    table.create_if_missing()
    stores: dict[str, Any] = {"hot": None, "durable": table}
    assert export_user("u", memories=False, **stores)["memories"] == []
    with pytest.raises(ValueError, match="memories must be"):
        export_user("u", memories=True, **stores)
