"""Lists of users and sessions, and export and deletion of all data of a user."""

from strands_manga_memory.user_data.erasure import ErasureReport, forget_user
from strands_manga_memory.user_data.session_list import (
    SessionPage,
    UserPage,
    list_sessions,
    list_users,
)
from strands_manga_memory.user_data.user_export import export_user

__all__ = [
    "ErasureReport",
    "SessionPage",
    "UserPage",
    "export_user",
    "forget_user",
    "list_sessions",
    "list_users",
]
