"""An answer whose end is missing proves neither presence nor absence."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer

import boto3
import pytest
from botocore.config import Config

from strands_manga_memory import DynamoDBTable
from strands_manga_memory.exceptions import StoreUnavailableError

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
_ABSENT = _HEAD + b"Content-Length: 2\r\n\r\n{}"


@contextmanager
def answering(*answers: bytes, deadline: float) -> Iterator[DynamoDBTable]:
    """Serve a table with these answers, one per connection, the last repeatedly."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(
                int(self.headers["Content-Length"])
            )  # what is left unread makes the kernel reset the connection
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

    with TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            endpoint_url="http://{}:{}".format(*server.server_address),
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )
        try:
            yield DynamoDBTable(client, name="cut", deadline=deadline)
        finally:
            client.close()
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    "cut",
    [
        _HEAD[:30],
        _HEAD,
        _HEAD + b"Content-Le",
        _HEAD + b"Content-Length: ",
        _HEAD + b"Content-Length: 99\r\n\r\n",
        _HEAD + b'Content-Length: 99\r\n\r\n{"Item": {"session_id": {"S": "a"}, "sk"',
        _HEAD.replace(b"200 OK", b"400 Bad Request") + b"Content-Length: 99\r\n\r\n{",
    ],
)
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
    # Earlier versions of botocore raise an error of their own.
    texts = "ended before the answer|Connection was closed"
    with (
        answering(cut, deadline=0.1) as table,
        pytest.raises(StoreUnavailableError, match=texts),
    ):
        ask(table)


def test_it_is_asked_for_again() -> None:
    with answering(_HEAD, _ABSENT, deadline=30) as table:
        assert table.get("a", "b") is None
