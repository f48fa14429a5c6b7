"""Export and erasure of all data of a user."""

from typing import TYPE_CHECKING

from strands_manga_memory.lazy import door

if TYPE_CHECKING:
    from strands_manga_memory.user_data.erasure import ErasureReport, forget_user
    from strands_manga_memory.user_data.user_export import export_user
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "erasure": "ErasureReport forget_user",
            "user_export": "export_user",
        },
    )

__all__ = ["ErasureReport", "export_user", "forget_user"]
