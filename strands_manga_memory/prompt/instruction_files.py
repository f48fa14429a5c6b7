"""Instruction files such as ``AGENT.md``, whose text is added to the system prompt."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from strands import Agent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.tools.decorator import DecoratedFunctionTool

from strands_manga_memory.arguments import checked, with_repr
from strands_manga_memory.call_state import declares_read_only
from strands_manga_memory.messages.injection import escape_line, escape_own_tags, with_system_text

logger = logging.getLogger(__name__)

FILE_NAMES = ("AGENT.md", "MEMORY.md", ".agent-context.md")
MAX_BYTES = 16 * 1024
_OWN_MODULES = ("strands_manga_memory.", "strands.memory.memory_manager")
"""Modules whose tools write no instruction files: those of this package and the memory tools of
Strands.
"""


class InstructionFiles:
    """Reader of files with instructions for the model, such as ``AGENT.md``, in some folders.

    The files ``AGENT.md``, ``MEMORY.md`` and ``.agent-context.md`` of each folder are read in this
    order. Each text is returned with the path of its file. All files together have at most 16 KB.
    Longer text is truncated, with a note.

    Some files are refused for security:

    - Files with several hard links, and symbolic links that leave the folder or lead to a hidden
      file or folder.
    - Files that this process can change, if the agent has a tool that is not read-only. An attacker
      could use the tool to rewrite the model's instructions.

    A tool is read-only if ``read_only`` contains its name, or if its MCP server declares
    ``readOnlyHint`` without ``destructiveHint``.

    Args:
        folders: Folders to read, in order. Default: the working directory, ``~/.agent``,
            ``/etc/agent/global``.
        allow: Folders to read even if a tool can write to them.
        read_only: Names of tools that write no files.
    """

    @checked
    def __init__(
        self,
        folders: Iterable[str | os.PathLike[str]] | None = None,
        *,
        allow: Iterable[str | os.PathLike[str]] = (),
        read_only: Iterable[str] = (),
    ) -> None:
        self._folders = [Path(folder) for folder in folders] if folders is not None else None
        self._allow = [_resolve(folder) for folder in allow]
        self._read_only = frozenset(read_only)

    def __repr__(self) -> str:
        folders = None if self._folders is None else [str(folder) for folder in self._folders]
        return f"InstructionFiles({folders})"

    def read(self, tools: Iterable[Mapping[str, Any]] = ()) -> str:
        """Read all instruction files, and return their text; empty if no file can be used.

        Args:
            tools: Specifications of the agent's tools, without the tools of this package. A file
                that one of the tools could change is not read.
        """
        folders = self._folders
        if folders is None:
            folders = [Path.cwd(), Path.home() / ".agent", Path("/etc/agent/global")]
        writers = sorted(
            spec["name"]
            for spec in tools
            if spec["name"] not in self._read_only and not declares_read_only(spec)
        )
        parts: list[str] = []
        left, seen = MAX_BYTES, set[Path]()
        for folder in folders:
            for name in FILE_NAMES:
                path = folder / name
                real = _resolve(path)
                if real in seen or not real.is_file():
                    continue
                seen.add(real)
                if self._is_refused(path, real, _resolve(folder), writers):
                    continue
                part = self._part(path, real, left)
                if part:
                    parts.append(part)
                    left -= len(part.encode()) + 1
        return "\n".join(parts)

    def _is_refused(self, path: Path, real: Path, folder: Path, writers: Sequence[str]) -> bool:
        inside = real.relative_to(folder).parts if real.is_relative_to(folder) else ()
        if not inside or real.stat().st_nlink > 1:
            logger.warning(
                "path=<%s> | refused an instruction file that links out of its folder", path
            )
            return True
        if any(part.startswith(".") and part not in FILE_NAMES for part in inside):
            logger.warning(
                "path=<%s> | refused an instruction file that links to a hidden file", path
            )
            return True
        if any(folder.is_relative_to(allowed) for allowed in self._allow):
            return False
        if not writers or not (can_change(path.absolute()) or can_change(real)):
            return False
        logger.warning(
            "path=<%s>, tools=<%s> | refused an instruction file that tools can write; declare"
            " tools that write nothing in InstructionFiles(read_only=), or the folder in allow=",
            path,
            ", ".join(writers[:5]),
        )
        return True

    def _part(self, path: Path, real: Path, left: int) -> str:
        head, foot = (
            f'<instructions from="{escape_line(path, 300).replace(chr(34), "")}">\n',
            "\n</instructions>",
        )
        cut = "\n[truncated: the instruction files exceed their limit]"
        room = left - len((head + foot).encode())
        if room <= len(cut):
            logger.warning(
                "path=<%s> | skipped an instruction file: the limit for all files is reached", path
            )
            return ""
        try:
            with real.open("rb") as file:
                data = file.read(room + 1)
            is_whole = len(data) <= room
            text = (
                data.decode() if is_whole else data[: room - len(cut)].decode(errors="ignore") + cut
            )
        except (OSError, UnicodeDecodeError) as error:
            logger.warning(
                "path=<%s>, error=<%s> | failed to read an instruction file",
                path,
                type(error).__name__,
            )
            return ""
        text = escape_own_tags(text.strip())
        while len((head + text + foot).encode()) > left:  # escaping tags made it longer
            text = text[:-1]
        return f"{head}{text}{foot}" if text else ""


@with_repr("_instructions")
class StableTexts(Plugin):
    """Plugin that adds instruction files to the system prompt.

    The files are read once, so that the provider can cache the prompt. Files that a tool of the
    agent could write are not used. Each agent therefore needs a plugin of its own.

    Example::

        agent = Agent(plugins=[StableTexts(InstructionFiles())])

    Args:
        instructions: Instruction files.

    Raises:
        ValueError: The plugin already serves another agent. Raised by the agent's constructor.
    """

    name = "strands-manga-memory:stable-texts"

    def __init__(self, instructions: InstructionFiles) -> None:
        self._instructions = instructions
        self._text: str | None = None
        self._agent: weakref.ref[Agent] | None = None
        super().__init__()

    def init_agent(self, agent: Agent) -> None:
        """Register middleware that adds the instruction files to each model call of an agent."""
        if self._agent is not None:
            raise ValueError(
                "this StableTexts plugin already serves an agent; create one for each agent"
            )
        self._agent = weakref.ref(agent)
        agent.add_middleware(InvokeModelStage.Input, self._add_text)

    async def _add_text(self, context: InvokeModelContext) -> InvokeModelContext:
        if self._text is None:  # all tools are registered by the first call
            await asyncio.to_thread(self.load, cast("Agent", context.agent))
        return with_system_text(context, self.text)

    @property
    def text(self) -> str:
        """Text of the instruction files for the system prompt; empty before the files are read."""
        return self._text or ""

    def load(self, agent: Agent) -> None:
        """Read the instruction files for an agent. Only the first call reads them."""
        if self._text is None:
            registry = agent.tool_registry
            own = {name for name, tool in registry.registry.items() if _is_own(tool)}
            specs = registry.get_all_tool_specs()
            self._text = self._instructions.read(spec for spec in specs if spec["name"] not in own)


def _is_own(tool: object) -> bool:
    return isinstance(tool, DecoratedFunctionTool) and str(vars(tool).get("__module__")).startswith(
        _OWN_MODULES
    )


def _resolve(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.realpath(Path(path).expanduser()))


@dataclass(frozen=True, kw_only=True)
class Access:
    """Permissions of this process on a file or a folder.

    Attributes:
        writable: Whether the process may write to the file, or create, rename and remove entries of
            the folder.
        owned: Whether the process owns the file or folder, so that the process may make it
            writable.
        sticky: Whether only owners may rename and remove the entries of the folder.
    """

    writable: bool = False
    owned: bool = False
    sticky: bool = False


def access_of(path: Path) -> Access:
    """Return the permissions of this process on a path.

    Nothing is writable on a read-only file system.

    Raises:
        OSError: The path cannot be inspected.
    """
    status = path.stat()
    writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if sys.platform == "win32" or not hasattr(os, "geteuid"):
        return Access(writable=writable)
    is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    owned = status.st_uid == os.geteuid() and not is_read_only
    return Access(
        writable=writable,
        owned=owned,
        sticky=bool(status.st_mode & stat.S_ISVTX) and os.geteuid() != 0,
    )


def can_change(path: Path, *, look: Callable[[Path], Access] = access_of) -> bool:
    """Return whether this process can change or replace the file at an absolute path.

    It can if it owns, or may write to, the file or a folder above it. The right to write to a
    folder with the sticky bit, such as ``/tmp``, does not count. The result is also True if the
    path cannot be inspected. ``look`` returns the permissions on a path.
    """
    try:
        file, *folders = map(look, (path, *path.parents))
    except OSError:
        return True
    return (
        file.writable
        or file.owned
        or any(each.owned or (each.writable and not each.sticky) for each in folders)
    )
