"""Clients of redis-py for a server, a cluster or sentinels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from strands_manga_memory.exceptions import StoreUnavailableError


def redis_client(
    hosts: Sequence[tuple[str, int]], *, kind: str = "", tls: bool = False, service: str = "", **options: Any
) -> redis.Redis | RedisCluster:
    """Return a client for ``RedisHotStore``: 50 connections, timeouts of 2 s and 1 s, no retries.

    Args:
        hosts: Hosts and ports of the server, of cluster nodes, or of the sentinels.
        kind: ``""``, ``"cluster"`` or ``"sentinel"``.
        tls: Whether the connections are encrypted.
        service: Name of the service that the sentinels monitor.
        options: Further arguments of the client's connections; ``sentinel_username`` and ``sentinel_password``.

    Raises:
        StoreUnavailableError: No node of the cluster is available.
    """
    login = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    settings: dict[str, Any] = {"max_connections": 50, "socket_connect_timeout": 2.0, "socket_timeout": 1.0, **options}
    settings["retry"] = Retry(NoBackoff(), 0)
    if kind == "cluster":
        try:
            nodes = [ClusterNode(host, port) for host, port in hosts]  # type: ignore[no-untyped-call]
            return RedisCluster(startup_nodes=nodes, ssl=tls, **settings)
        except (RedisError, RedisClusterException, OSError) as error:
            raise StoreUnavailableError(f"hosts={hosts} | no node of the cluster answered: {error}") from error
    if kind == "sentinel":
        settings["ssl"] = tls
        shared = {name: value for name, value in settings.items() if name.startswith(("socket_", "ssl"))}
        shared |= {"retry": settings["retry"], **login}
        sentinel = Sentinel(list(hosts), sentinel_kwargs=shared, **settings)  # type: ignore[no-untyped-call]
        return cast("redis.Redis", sentinel.master_for(service))  # type: ignore[no-untyped-call]
    host, port = hosts[0]
    connection = redis.SSLConnection if tls else redis.Connection
    pool = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        timeout=1, connection_class=connection, host=host, port=port, **settings
    )
    return redis.Redis.from_pool(pool)
