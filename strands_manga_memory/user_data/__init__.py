"""Export and erasure of all data of a user."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.user_data.erasure import ErasureReport, forget_user
    from strands_manga_memory.user_data.session_list import SessionPage, UserPage, list_sessions, list_users
    from strands_manga_memory.user_data.user_export import export_user
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "erasure": "ErasureReport forget_user",
            "session_list": "SessionPage UserPage list_sessions list_users",
            "user_export": "export_user",
        },
    )

__all__ = ["ErasureReport", "SessionPage", "UserPage", "export_user", "forget_user", "list_sessions", "list_users"]
