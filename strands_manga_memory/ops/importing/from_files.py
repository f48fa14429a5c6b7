"""MessageFilesSource: message logs in files - ``FileSessionManager``, and ``S3SessionManager``, which names them the same."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from strands_manga_memory.exceptions import CorruptRecordError
from strands_manga_memory.ops.importing.message_log import Record, read_conversation
from strands_manga_memory.ops.importing.source import Content, Found, damaged, json_object, reading, unreadable
from strands_manga_memory.session.transfer import TransferredOrchestrator

_NAMES = re.compile(
    r"\Asession_(?P<session>[^/]+)/(?:"
    r"(?P<root>session\.json)|"
    r"agents/agent_(?P<agent>[^/]+)/(?:(?P<head>agent\.json)|messages/message_(?P<number>[^/]*)\.json)|"
    r"multi_agents/multi_agent_(?P<orchestrator>[^/]+)/multi_agent\.json"
    r")\Z",
    re.DOTALL,
)


class Blobs(Protocol):
    """Values under keys with slashes: files of a folder, objects of a bucket, items of a storage's table."""

    def names(self) -> Iterator[str]:
        """Yield all keys."""

    def read(self, key: str) -> bytes:
        """Return a value; raise ``CorruptRecordError`` naming ``key`` if it cannot be trusted, or is gone."""


class Folder:
    """The files of a folder. Links are not followed: they may lead anywhere.

    Args:
        path: The folder.

    Raises:
        ValueError: There is no such folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).expanduser()
        if not self._path.is_dir():
            raise ValueError(f"path must be a folder, got {str(path)!r:.200}")

    def names(self) -> Iterator[str]:
        """Yield the files' paths below the folder."""
        for folder, _, files in os.walk(self._path):
            for name in files:
                yield Path(folder, name).relative_to(self._path).as_posix()

    def read(self, key: str) -> bytes:
        """Return a file."""
        path = self._path / key
        if path.is_symlink():
            raise damaged(str(path), "it is a link")
        try:
            return path.read_bytes()
        except OSError as error:
            raise damaged(str(path), error.strerror) from error


class Bucket:
    """The objects of an S3 bucket, or of something with the same API.

    Args:
        client: A boto3 client.
        bucket: Its name.
        prefix: Only keys below it.
    """

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._name = f"s3://{bucket}"
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def names(self) -> Iterator[str]:
        """Yield the objects' keys below the prefix."""
        with reading(self._name, BotoCoreError, ClientError):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for page in pages:
                yield from (entry["Key"].removeprefix(self._prefix) for entry in page.get("Contents", ()))

    def read(self, key: str) -> bytes:
        """Return an object."""
        with reading(self._name, BotoCoreError, ClientError):
            try:
                body: bytes = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                    raise
                raise damaged(f"{self._name}/{self._prefix}{key}", "it is gone") from error
        return body


@dataclass
class _Session:
    """The keys of a session."""

    root: str | None = None
    heads: dict[str, str] = field(default_factory=dict)
    messages: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # numbers by key
    orchestrators: dict[str, str] = field(default_factory=dict)


class MessageFilesSource:
    """Sessions of ``FileSessionManager`` (a ``Folder``) or ``S3SessionManager`` (a ``Bucket``).

    Args:
        blobs: Where the files are.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def conversations(self) -> Iterator[Found]:
        """Yield what there is, sorted by session and agent."""
        for session_id, session in sorted(self._sessions().items()):
            for agent_id in sorted({*session.heads, *session.messages}):
                messages = session.messages[agent_id]
                if agent_id in session.heads:
                    read = partial(self._read, session_id, agent_id, session.heads[agent_id], messages, session.root)
                    yield Found(session_id, agent_id, "agent", read)
                else:
                    what = f"agent.json is missing; {len(messages)} messages are left"
                    yield unreadable(session_id, agent_id, what, record=next(iter(messages)))
            for id_, key in sorted(session.orchestrators.items()):
                yield Found(session_id, id_, "orchestrator", partial(self._read_orchestrator, key))

    def _sessions(self) -> dict[str, _Session]:
        sessions: dict[str, _Session] = defaultdict(_Session)
        for key in self._blobs.names():
            match = _NAMES.match(key)
            if match is None:
                continue
            session = sessions[match["session"]]
            if match["root"]:
                session.root = key
            elif match["head"]:
                session.heads[match["agent"]] = key
            elif match["agent"]:
                session.messages[match["agent"]][key] = match["number"]
            else:
                session.orchestrators[match["orchestrator"]] = key
        return sessions

    def _read(self, session_id: str, agent_id: str, head: str, messages: dict[str, str], root: str | None) -> Content:
        records = [Record(key, self._blobs.read(key), number) for key, number in messages.items()]
        content = read_conversation(session_id, agent_id, Record(head, self._blobs.read(head)), records)
        return Content(content.transferred, (*content.notes, *self._root_notes(root, session_id)))

    def _root_notes(self, root: str | None, session_id: str) -> Iterator[str]:
        """Yield what is wrong with the session's own record; nothing of it is needed."""
        if root is None:
            yield "session.json is missing in the source"
            return
        try:
            if json_object(self._blobs.read(root), record=root).get("session_id") != session_id:
                yield "session.json in the source is that of another session"
        except CorruptRecordError as error:
            yield f"nothing of it is needed, but {error}"

    def _read_orchestrator(self, key: str) -> Content:
        return Content(TransferredOrchestrator(json_object(self._blobs.read(key), record=key)))
