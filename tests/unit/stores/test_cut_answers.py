"""An answer that ends within its headers is none: it says neither that a record is there, nor that it is not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import boto3
import pytest
from botocore.config import Config

from strands_manga_memory.exceptions import StoreUnavailableError
from strands_manga_memory.stores.dynamodb import DynamoDBTable

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
_ABSENT = _HEAD + b"Content-Length: 2\r\n\r\n{}"


@contextmanager
def answering(*answers: bytes) -> Iterator[DynamoDBTable]:
    """Serve a table by a server that gives these answers, one a connection, the last one again and again."""
    left = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(left.pop(0) if len(left) > 1 else left[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            endpoint_url="http://{}:{}".format(*server.getsockname()),
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )
        yield DynamoDBTable(client, name="cut", deadline=0.4)
        client.close()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("cut", [_HEAD[:30], _HEAD, _HEAD + b"Content-Le", _HEAD + b"Content-Length: "])
@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.get("a", "b"),
        lambda table: table.batch_get([("a", "b")]),
        lambda table: list(table.query("a")),
        lambda table: table.batch_write(deletes=[("a", "b")]),
    ],
    ids=["get", "batch_get", "query", "batch_write"],
)
def test_an_answer_cut_off_is_no_answer(cut: bytes, ask: Callable[[DynamoDBTable], object]) -> None:
    with answering(cut) as table, pytest.raises(StoreUnavailableError, match="cut off"):
        ask(table)


def test_it_is_asked_for_again() -> None:
    with answering(_HEAD, _ABSENT) as table:
        assert table.get("a", "b") is None
