"""Write access: the file, its folder, each folder above it, and whose they are."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strands_manga_memory import InstructionFiles
from strands_manga_memory.prompt.instruction_files import Access, access_of, can_change

FILE = Path("/srv/shop/work/AGENT.md")
NOBODY = 65534
WRITER = {"name": "save", "inputSchema": {"json": {}}}


def changeable(**of: Access) -> bool:
    """Tell whether a file in a folder, one of them with this access, can be changed."""
    return can_change(FILE, look=lambda path: of.get(path.stem or "root", Access()))


def test_nothing_of_it_is_within_reach() -> None:
    assert not changeable()


@pytest.mark.parametrize("name", ["AGENT", "work", "shop", "srv", "root"])
@pytest.mark.parametrize("access", [Access(writable=True), Access(owned=True)])
def test_the_file_and_every_folder_above_it_count(name: str, access: Access) -> None:
    assert changeable(**{name: access})


def test_others_entries_of_a_sticky_folder_are_out_of_reach() -> None:
    assert not changeable(shop=Access(writable=True, sticky=True))
    assert changeable(shop=Access(writable=True, sticky=True), work=Access(owned=True))
    assert changeable(shop=Access(writable=True, sticky=True, owned=True))


def test_what_cannot_be_looked_at_counts_as_changeable(tmp_path: Path) -> None:
    assert can_change(tmp_path / "missing")


def test_ones_own_file_is_changeable_whatever_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "AGENT.md"
    path.touch()
    path.chmod(0o444)
    assert access_of(path).owned
    assert can_change(path)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Be a user without privileges, where the tests run as root; else one is that already."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_files_of_another_user_by_their_modes() -> None:
    """As root's files for another user; an owner can change every file."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made) / "work"
        work.mkdir()
        file = work / "AGENT.md"
        file.write_text("Rules of work.")

        def read(*, above: int, folder: int, mode: int) -> bool:
            for path, bits in ((file, mode), (work, folder), (Path(made), above)):
                path.chmod(bits)
            with somebody_else():
                return InstructionFiles([work]).read([WRITER]) != ""

        is_root = os.geteuid() == 0
        assert read(above=0o755, folder=0o755, mode=0o644) is is_root
        assert not read(above=0o755, folder=0o755, mode=0o666)
        assert not read(above=0o777, folder=0o555, mode=0o444)
        assert not read(above=0o755, folder=0o777, mode=0o444)
        assert read(above=0o755, folder=0o1777, mode=0o444) is is_root
        Path(made).chmod(0o755)
        if is_root:
            os.chown(work, NOBODY, NOBODY)
        assert not read(above=0o755, folder=0o555, mode=0o444)
        with somebody_else():
            assert "Rules of work" in InstructionFiles([work], allow=[work]).read([WRITER])
