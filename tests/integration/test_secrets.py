"""Secrets and what users say are in no log record, trace, exception or repr."""

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent

from strands_manga_memory import (
    AesGcmCipher,
    Codec,
    DynamoDBTable,
    MangaMemory,
    MangaMemoryError,
    MangaMemorySettings,
    open_hot_store,
    open_table,
)
from strands_manga_memory.ops import diagnose
from strands_manga_memory.stores import DataKey, TenantCipher, TenantKeys
from strands_manga_memory.testing import ScriptedModel
from tests import servers
from tests.support import settle

PASSWORD, AWS_KEY, SAID, USER = "pw-S3cr3t", "aws-S3cr3tKey", "my-S3cr3t-words", "user-S3cr3t"
KEY = b"S3cr3t-bytes-of-a-key-of-32-byte"
SECRETS = [PASSWORD, AWS_KEY, KEY.decode(), KEY.hex(), repr(KEY)]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = provider
    yield exporter
    trace._TRACER_PROVIDER = before
    provider.shutdown()


def shown(error: BaseException) -> str:
    """Return all output of an error's traceback, with its causes and attributes."""
    found, seen = "".join(traceback.format_exception(error)), error
    while seen is not None:
        found += f"{seen!r} {seen} {vars(seen)}"
        seen = seen.__cause__ or seen.__context__
    return found


def failing(tmp_path: Path) -> list[Callable[[], object]]:
    """What goes wrong with secrets at hand."""
    port = servers.free_port()
    wrong = f"redis://{USER}:{PASSWORD}@127.0.0.1:{port}/0?deadline=0.1"
    aws = {
        "region_name": "x",
        "endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": "id",
    }
    client = boto3.client("dynamodb", aws_secret_access_key=AWS_KEY, **aws)
    cipher = TenantCipher(TenantKeys({None: {"k": KEY}}))
    sealed = Codec(cipher=cipher).encode("x", "a/b")
    return [
        lambda: open_hot_store(wrong).get_value("x"),
        lambda: open_hot_store(wrong.replace("redis:", "rediss:")).get_value("x"),
        lambda: open_hot_store(wrong.replace("redis:", "redis+cluster:")),
        lambda: open_hot_store(wrong.replace("redis:", "postgres:")),
        lambda: open_hot_store(f"{wrong}&no_such_argument=1"),
        lambda: open_hot_store(f"{wrong}&max_connections=many"),
        lambda: open_hot_store(wrong.replace(str(port), "no-port")),
        lambda: open_table(wrong),
        lambda: MangaMemorySettings(hot_url=wrong.replace("redis:", "postgres:")),
        lambda: MangaMemory.open(wrong, f"sqlite:///{tmp_path}/m", no_such_setting=1).session,
        lambda: DynamoDBTable(client, deadline=0.1).get("a", "b"),
        lambda: Codec(cipher=AesGcmCipher({"k": KEY}, current="k")).decode(sealed, "a/b"),
        lambda: Codec(cipher=cipher).decode(sealed, "a/c"),
        lambda: TenantKeys({None: {"k": KEY[:20]}}),
        lambda: AesGcmCipher({"k": KEY[:20]}, current="k"),
        lambda: AesGcmCipher({"k": KEY}, current="other"),
    ]


def test_errors_and_causes_show_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refused = 0
    with caplog.at_level(logging.DEBUG, logger="strands_manga_memory"):
        for work in failing(tmp_path):
            try:
                work()
            except (MangaMemoryError, ValueError, TypeError) as error:
                refused += 1
                found = shown(error)
                assert not [s for s in [*SECRETS, KEY[:20].decode()] if s in found], found
    assert refused >= len(failing(tmp_path)) - 2
    assert not [secret for secret in SECRETS if secret in caplog.text]


def test_nothing_shows_its_secrets(valkey_server: servers.Valkey, tmp_path: Path) -> None:
    url = f"redis://default:{PASSWORD}@{valkey_server.host}:{valkey_server.port}/0"
    settings = MangaMemorySettings(hot_url=url)
    keys = TenantKeys({None: {"k": KEY}})
    codec = Codec(cipher=TenantCipher(keys))
    memory = MangaMemory.open(
        url, f"sqlite:///{tmp_path}/m", memories=True, codec=codec, defaults=settings
    )
    every: list[Any] = [
        settings,
        keys,
        codec,
        codec.cipher,
        memory,
        memory.hot,
        memory.durable,
        memory.stats(),
    ]
    every += [
        keys.current(""),
        AesGcmCipher({"k": KEY}, current="k"),
        DataKey("k", KEY),
        memory.codec,
        memory.settings,
    ]
    for each in every:
        for text in (repr(each), str(each), f"{each}"):
            assert not [secret for secret in SECRETS if secret in text], text
    for finding in diagnose(settings):
        assert PASSWORD not in repr(finding)


def test_logs_and_spans_of_a_session_show_no_secret_and_from_info_on_no_user(
    valkey_server: servers.Valkey,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spans: InMemorySpanExporter,
) -> None:
    codec = Codec(cipher=TenantCipher(TenantKeys({"acme": {"k": KEY}})))
    hot = f"redis://{valkey_server.host}:{valkey_server.port}/0?deadline=5"
    with caplog.at_level(logging.DEBUG, logger="strands_manga_memory"):
        memory = MangaMemory.open(
            hot, f"sqlite:///{tmp_path}/m", memories=True, codec=codec, hot_deadline=10.0
        )
        kwargs = memory.agent_kwargs(user_id=USER, session_id="s", tenant="acme", task_state=True)
        agent = Agent(model=ScriptedModel(), **kwargs)
        agent(f"I say {SAID}. My favorite genre is {SAID}.")
        agent._session_manager.flush()
        memory.user(USER, tenant="acme").remember(SAID)
        memory.user(USER, tenant="acme").recall()
        memory.close()
        bad = MangaMemory.open(hot, f"sqlite:///{tmp_path}/m", memories=True, hot_deadline=10.0)
        with pytest.raises(MangaMemoryError):
            bad.agent(ScriptedModel(), user_id=USER, session_id="s", tenant="acme")
        assert memory.forget_user(USER, tenant="acme").complete
        settle(memory, bad)
    ours = [record for record in caplog.records if record.name.startswith("strands_manga_memory")]
    assert ours
    for record in ours:
        text = record.getMessage()
        assert not [secret for secret in [*SECRETS, SAID] if secret in text], text
        assert record.levelno < logging.INFO or USER not in text, text
    mine = [
        span
        for span in spans.get_finished_spans()
        if "manga" in (span.instrumentation_scope.name or "")
    ]
    told = [f"{span.name} {dict(span.attributes or {})} {span.events}" for span in mine]
    assert not [text for text in told for secret in [*SECRETS, SAID] if secret in text]
