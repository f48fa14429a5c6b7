import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
from strands.tools.mcp import MCPClient

from strands_manga_memory import ConversationScope, MangaMemory, MangaMemorySettings, TtlPolicy
from strands_manga_memory.conversation import SummarySchedule
from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.state import StateLimits
from strands_manga_memory.stores import AesGcmCipher, Codec
from strands_manga_memory.testing import ScriptedModel
from tests import settings_page
from tests.support import DAY

GUIDE = Path(__file__).parents[2] / "strands_manga_memory/guide/settings.md"

BAD: dict[str, list[str]] = {
    "hot_url": ["localhost", "http://x", "sqlite:///x"],
    "durable_url": ["memory://", "redis://x"],
    "users_url": ["yes", "redis://x"],
    "create_tables": ["perhaps", "2"],
    "flush_every": ["0", "-1", "1001", "1.5", "five"],
    "refresh": ["always"],
    "hot_deadline": ["0", "-1", "61", "nan", "inf", "soon"],
    "durable_deadline": ["0", "61"],
    "profile_deadline": ["0", "61", "nan"],
    "max_unsaved": ["0", "1e3x"],
    "ttl_tier": ["gold"],
    "ttl_mode": ["never"],
    "ttl_seconds": ["0", "-5", "1e9"],
    "session_ttl": ["0", "nan"],
    "ttl_grace": ["3599"],
    "history": ["all"],
    "max_tokens": ["0", "many"],
    "trim_every": ["-1", "half"],
    "max_turns": ["0", "few"],
    "summary_trigger_tokens": ["0", "all"],
    "summary_trigger_turns": ["0", "1.5"],
    "summary_keep_turns": ["0", "1001"],
    "summary_tokens": ["0", "2001", "1.5"],
    "summary_strategy": ["sync"],
    "summary_warn_share": ["0", "1.1", "75%", "nan"],
    "summary_cache_hours": ["-1", "8761", "a day"],
    "summary_model": ["claude haiku", "haiku;"],
    "summary_temperature": ["-0.1", "1.5", "low"],
    "recall": ["perhaps"],
    "recall_tokens": ["0", "all"],
    "task_state": ["some"],
    "goal_tokens": ["0", "99", "1.5"],
    "goal_warn_tokens": ["0", "many"],
    "goal_archive_tokens": ["0"],
    "goals_kept": ["-1", "1001", "true"],
    "executions_kept": ["0"],
    "failed_subtasks_kept": ["0", "51"],
    "goal_context_characters": ["0"],
    "steps_kept": ["0", "1e9"],
    "pii_actions": ["refuse", "card", "card=shred", "cards=refuse", "card=refuse=redact",
        "card=refuse,"],
    "retention_days": ["30", "fact=0", "fact=for ever", "preference=30", "facts=30", "fact=nan",
        "fact=36501"],
    "breaker_users": ["0", "1001"],
    "breaker_failures": ["0"],
    "breaker_reset_after": ["0", "601"],
    "breaker_timeout": ["0"],
    "telemetry": ["loud"],
}  # fmt: skip


def test_every_setting_has_bad_values_here_and_a_description() -> None:
    assert set(BAD) == set(MangaMemorySettings.model_fields)
    assert all(field.description for field in MangaMemorySettings.model_fields.values())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_bad_value_names_its_variable_and_what_it_takes(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MANGA_MEMORY_{name.upper()}", value)
    with pytest.raises(ValueError, match=rf"^MANGA_MEMORY_{name.upper()} must be ") as raised:
        MangaMemorySettings.from_env()
    assert value in str(raised.value)
    with pytest.raises(ValueError, match=rf"^{name} must be "):
        MangaMemorySettings(**{name: value})


def test_variables_and_what_is_given_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MangaMemorySettings.from_env() == MangaMemorySettings()
    environ = {
        "MANGA_MEMORY_FLUSH_EVERY": "10",
        "MANGA_MEMORY_TELEMETRY": "false",
        "MANGA_MEMORY_TTL_SECONDS": "120",
        "MANGA_MEMORY_USERS_URL": "",
        "OTHER": "x",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert MangaMemorySettings() == MangaMemorySettings(
        flush_every=5
    )  # only from_env reads variables
    settings = MangaMemorySettings.from_env(max_tokens=99)
    assert (settings.flush_every, settings.telemetry, settings.max_tokens, settings.users_url) == (
        10,
        False,
        99,
        None,
    )
    assert settings.ttl_policy() == TtlPolicy(seconds=120.0)
    with pytest.raises(ValueError, match=r"^max_tokens must be 1 to"):
        MangaMemorySettings.from_env(max_tokens=0)


def test_two_mistakes_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGA_MEMORY_FLUSH_EVERY", "0")
    monkeypatch.setenv("MANGA_MEMORY_REFRESH", "x")
    with pytest.raises(ValueError, match=r"MANGA_MEMORY_FLUSH_EVERY.*MANGA_MEMORY_REFRESH"):
        MangaMemorySettings.from_env()


def test_a_slip_in_a_name_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANGA_MEMORY_FLUSH_EVRY", "3")
    with caplog.at_level(logging.WARNING):
        MangaMemorySettings.from_env()
    assert "MANGA_MEMORY_FLUSH_EVERY" in caplog.text
    with pytest.raises(
        ValueError, match=r"Unknown setting 'flush_evry'\. Did you mean 'flush_every'\?"
    ):
        MangaMemorySettings(flush_evry=3)


def test_settings_given_as_defaults_reach_what_they_set(tmp_path: Path) -> None:
    """``open(defaults=...)`` reads every setting; arguments override them."""
    url = f"sqlite:///{tmp_path}/s.db"
    defaults = MangaMemorySettings(
        durable_url=url, users_url="true", flush_every=7, ttl_seconds=60.0, create_tables=False
    )
    with MangaMemory.open(defaults=defaults, create_tables=True) as memory:
        tiers = memory.session("s")._tiers
        assert (tiers.flush_every, tiers.ttl.seconds) == (7, 60.0)
        assert memory.memories is not None
        assert repr(memory) == f"MangaMemory(hot=memory://, durable={url}, memories={url})"
    with MangaMemory.open(durable=url, memories=False, defaults=defaults, flush_every=3) as other:
        assert (other.memories, other.session("s")._tiers.flush_every) == (None, 3)


def test_variables_reach_what_they_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "durable_url": f"sqlite:///{tmp_path}/s.db",
        "users_url": "true",
        "flush_every": "7",
        "history": "summarize",
        "max_tokens": "3000",
        "max_turns": "9",
        "summary_trigger_tokens": "2000",
        "summary_trigger_turns": "6",
        "summary_keep_turns": "2",
        "summary_strategy": "async",
        "summary_warn_share": "0.5",
        "recall": "true",
        "recall_tokens": "150",
        "task_state": "true",
        "goal_tokens": "9000",
        "goals_kept": "0",
        "steps_kept": "7",
        "pii_actions": "card=refuse, email=redact",
        "retention_days": "interaction_summary=10,feedback=20",
        "breaker_users": "4",
    }.items():
        monkeypatch.setenv(f"MANGA_MEMORY_{name.upper()}", value)
    memory = MangaMemory.from_env()
    made: dict[str, Any] = memory.agent_kwargs(user_id="u", session_id="s")
    manager, parts = (
        made["conversation_manager"],
        {type(each).__name__: each for each in made["plugins"]},
    )
    assert (manager.trigger_tokens, manager.trigger_turns, manager.keep_recent_turns) == (
        2_000,
        6,
        2,
    )
    assert (manager.trimmer.max_tokens, manager.trimmer.max_turns) == (2_000, 9)
    assert manager.schedule == SummarySchedule(strategy="async", warn_share=0.5)
    stages = memory.agent_kwargs(user_id="u", session_id="c", history="compact")
    (summary,) = [s for s in stages["conversation_manager"].stages if "summary" in s.name]
    assert summary.manager.schedule == manager.schedule
    assert made["session_manager"]._tiers.flush_every == 7
    assert parts["HistoryRecall"].max_tokens == 150
    assert parts["StateCoordinator"].store.limits == StateLimits(
        goal_tokens=9_000, goals_kept=0, steps_kept=7
    )
    other: dict[str, Any] = memory.agent_kwargs(
        user_id="u", session_id="t", recall=False, task_state=False, max_turns=5
    )
    assert {type(each).__name__ for each in other["plugins"]} == {"UserContext"}
    assert other["conversation_manager"].trimmer.max_turns == 5
    user = memory.user("u")
    with pytest.raises(PersonalDataError, match="card"):
        user.remember("pay with 4111 1111 1111 1111")
    assert "[email]" in user.remember("write to momo@example.com").content
    before = time.time()
    assert user.record_feedback("too slow").expires_at == pytest.approx(before + 20 * DAY, abs=60)
    agent = memory.agent(ScriptedModel(), user_id="u", session_id="s")
    agent("Where is my order?")
    found = memory.finalize(ConversationScope("u", "s"))
    assert found.expires_at == pytest.approx(before + 10 * DAY, abs=60)
    assert memory.guard(MCPClient(url="http://127.0.0.1:9/mcp")).policy.users == 4
    memory.close()
    other = MangaMemory.from_env(memories=False, flush_every=2)  # what is given wins
    assert (other.memories, other.session("s")._tiers.flush_every) == (None, 2)
    other.close()
    monkeypatch.setenv("MANGA_MEMORY_FLUSH_EVERY", "none")
    with pytest.raises(
        ValueError, match="MANGA_MEMORY_FLUSH_EVERY must be 1 to 1,000 turns, got 'none'"
    ):
        MangaMemory.from_env()


def test_what_is_encrypted_in_memories_is_so_by_the_codecs_cipher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANGA_MEMORY_DURABLE_URL", f"sqlite:///{tmp_path}/s.db")
    monkeypatch.setenv("MANGA_MEMORY_PII_ACTIONS", "email=encrypt")
    with pytest.raises(ValueError, match="cipher must be given for the action 'encrypt'"):
        MangaMemory.from_env()
    codec = Codec(cipher=AesGcmCipher({"k": b"k" * 32}, current="k"))
    memory = MangaMemory.from_env(codec=codec, memories=True)
    user = memory.user("u")
    user.remember("write to momo@example.com")
    assert "momo@example.com" in user.recall(type="fact")[0].content
    memory.close()


def test_the_readme_has_the_table_of_all_settings() -> None:
    assert settings_page.variables() in GUIDE.read_text(encoding="utf-8")
    for _, _, _, accepted, _ in settings_page.setting_rows():
        if re.search(r"\d", accepted):
            assert re.search(
                r"(seconds|tokens|turns|messages|failures|users|days|goals|calls|subtasks|characters|steps|hours|\((share|temperature)\))$",
                accepted,
            )


def test_the_settings_page_is_written_from_the_declarations() -> None:
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page(), (
        "uv run python -m tests.settings_page"
    )
    for kind in settings_page.DOCUMENTED:
        rows = settings_page.parameters(kind)
        assert rows
        assert all(meaning for _, _, meaning in rows)


def test_a_parameter_that_no_docstring_explains_is_found() -> None:
    class Undocumented:
        """Does something.

        Args:
            known: What it is.
        """

        def __init__(self, known: int, forgotten: int = 1) -> None:
            del known, forgotten

    with pytest.raises(ValueError, match="forgotten"):
        settings_page.parameters(Undocumented)


def test_an_error_of_the_memory_table_names_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANGA_MEMORY_USERS_URL", "false")
    with pytest.raises(ValueError, match="USERS_URL must be a URL, true or none, accepted are"):
        MangaMemorySettings.from_env()


def test_the_settings_page_names_the_retention_of_each_type() -> None:
    description = str(MangaMemorySettings.model_fields["retention_days"].description)
    for type_, rule in MangaMemorySettings().retention().items():
        if rule.seconds is not None and rule.seconds != 90 * DAY:
            assert f" {rule.seconds / DAY:.0f}" in description, type_
