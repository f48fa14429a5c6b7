"""Importing: what ``export`` wrote, and what other session managers keep, stored here.

``import_user`` stores what ``export_user`` handed out. ``import_sessions`` reads a ``SessionSource``: one small reader for each
way in which sessions of Strands agents are stored elsewhere, named by ``open_source``.
"""

from strands_manga_memory.ops.importing.from_dynamodb import KeyValueTableSource, StorageTable
from strands_manga_memory.ops.importing.from_files import Blobs, Bucket, Folder, MessageFilesSource
from strands_manga_memory.ops.importing.from_redis import RedisSource
from strands_manga_memory.ops.importing.from_snapshots import SnapshotSource
from strands_manga_memory.ops.importing.from_valkey import ValkeySource
from strands_manga_memory.ops.importing.session_import import ImportedConversation, SessionsReport, import_sessions
from strands_manga_memory.ops.importing.source import Content, Found, SessionSource
from strands_manga_memory.ops.importing.source_urls import KINDS, open_source
from strands_manga_memory.ops.importing.user_import import ImportReport, import_user

__all__ = [
    "KINDS",
    "Blobs",
    "Bucket",
    "Content",
    "Folder",
    "Found",
    "ImportReport",
    "ImportedConversation",
    "KeyValueTableSource",
    "MessageFilesSource",
    "RedisSource",
    "SessionSource",
    "SessionsReport",
    "SnapshotSource",
    "StorageTable",
    "ValkeySource",
    "import_sessions",
    "import_user",
    "open_source",
]
