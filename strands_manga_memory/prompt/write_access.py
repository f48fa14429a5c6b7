"""Permissions of this process to change a file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Access:
    """Permissions of this process on a file or a folder.

    Attributes:
        writable: Whether the process may write to the file, or create, rename and remove entries of the folder.
        owned: Whether the process owns the file or folder, so that the process may make it writable.
        sticky: Whether only owners may rename and remove the entries of the folder.
    """

    writable: bool = False
    owned: bool = False
    sticky: bool = False


def access_of(path: Path) -> Access:
    """Return the permissions of this process on a path. Nothing is writable on a read-only file system.

    Raises:
        OSError: The path cannot be inspected.
    """
    status = path.stat()
    writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if sys.platform == "win32" or not hasattr(os, "geteuid"):
        return Access(writable=writable)
    is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    owned = status.st_uid == os.geteuid() and not is_read_only
    return Access(writable=writable, owned=owned, sticky=bool(status.st_mode & stat.S_ISVTX) and os.geteuid() != 0)


def can_change(path: Path, *, look: Callable[[Path], Access] = access_of) -> bool:
    """Return whether this process can change or replace a file.

    This is the case if it may write to the file, its folder or a folder above, or owns one of them, or if the path cannot be
    inspected.

    Args:
        path: Absolute path of the file.
        look: Function that returns the permissions on a path.
    """
    try:
        file, *folders = map(look, (path, *path.parents))
    except OSError:
        return True
    return file.writable or file.owned or any(each.owned or (each.writable and not each.sticky) for each in folders)
