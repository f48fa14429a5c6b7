"""Runs all checks of a deployment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from strands_manga_memory.assembly.settings import MangaMemorySettings
from strands_manga_memory.conversation import history_tokens
from strands_manga_memory.exceptions import StoreError
from strands_manga_memory.ops.doctor.durable_checks import check_durable
from strands_manga_memory.ops.doctor.finding import Finding, problem
from strands_manga_memory.ops.doctor.hot_checks import check_hot, not_opened
from strands_manga_memory.ops.doctor.process_checks import check_sweeping, check_vocabulary, check_window
from strands_manga_memory.ops.doctor.record_checks import check_records
from strands_manga_memory.stores.encoding.codec import Codec
from strands_manga_memory.stores.table import USER_MEMORY
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
    yield check_vocabulary()
    yield check_window(window, settings.max_tokens or history_tokens(window))
    try:
        hot = open_hot_store(settings.hot_url)
    except (ValueError, StoreError) as error:
        yield not_opened(error)
    else:
        yield from check_hot(hot, shown=without_password(settings.hot_url), clock=clock)
        hot.close()
    try:
        durable = open_table(settings.durable_url)
        users_url = users_table_url(settings.users_url, settings.durable_url)
        users = None if users_url is None else open_table(users_url, USER_MEMORY)
    except ValueError as error:
        yield problem("durable.reach", str(error), "correct the URL")
        return
    found = list(check_durable(durable, tier="durable", clock=clock))
    yield from found
    is_sound = not any(finding.remedy for finding in found)
    if is_sound:
        yield check_sweeping(durable, clock=clock)
    of_users = [] if users is None else list(check_durable(users, tier="users", clock=clock))
    yield from of_users
    if is_sound:
        sound_users = None if any(finding.remedy for finding in of_users) else users
        yield from check_records(durable, sound_users, codec, clock=clock, ttl=settings.ttl_policy())
