"""Imports exported users, and sessions of other Strands session managers."""

from strands_manga_memory.ops.importing.session_import import ImportedSession, SessionsReport, import_sessions
from strands_manga_memory.ops.importing.user_import import ImportReport, import_user

__all__ = ["ImportReport", "ImportedSession", "SessionsReport", "import_sessions", "import_user"]
