"""Write access: whether this process can change what a path leads to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Access:
    """What this process may do with a file or a folder.

    Attributes:
        writable: Whether it may write to it; to a folder: make, rename and remove what is in it.
        owned: Whether it is its own, so that it may make it writable.
        sticky: Whether a folder lets others' entries be renamed and removed by nobody but their owners.
    """

    writable: bool = False
    owned: bool = False
    sticky: bool = False


def access_of(path: Path) -> Access:
    """Return what this process may do with ``path``; a file system that is mounted to be read gives nothing away.

    Raises:
        OSError: It cannot be looked at.
    """
    found = path.stat()
    writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if sys.platform == "win32" or not hasattr(os, "geteuid"):
        return Access(writable=writable)
    is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    owned = found.st_uid == os.geteuid() and not is_read_only
    return Access(writable=writable, owned=owned, sticky=bool(found.st_mode & stat.S_ISVTX) and os.geteuid() != 0)


def can_change(path: Path, *, look: Callable[[Path], Access] = access_of) -> bool:
    """Tell whether this process can change the file at an absolute path, or put another in its place.

    It can if it may write to the file, to its folder or to a folder above it, or owns one of them. What cannot be looked at
    counts as changeable.
    """
    try:
        file, *folders = map(look, (path, *path.parents))
    except OSError:
        return True
    return file.writable or file.owned or any(each.owned or (each.writable and not each.sticky) for each in folders)
