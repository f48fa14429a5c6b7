"""Instruction files: order, origin, size, and folders that tools can write to."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from strands_manga_memory import InstructionFiles, MangaMemory, StateCoordinator
from strands_manga_memory.prompt import StableTexts
from strands_manga_memory.prompt.instruction_files import Access, access_of, can_change
from strands_manga_memory.testing import ScriptedModel


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("work", "home", "machine")]
    for folder in made:
        folder.mkdir()
        (folder / "AGENT.md").write_text(f"Rules of {folder.name}.")
    (made[0] / "MEMORY.md").write_text("Remember the lighthouse.")
    (made[0] / ".agent-context.md").write_text("店は神戸にあります。")
    (made[0] / "README.md").write_text("not an instruction")
    return made


def spec(name: str, *parameters: str) -> dict[str, Any]:
    return {
        "name": name,
        "inputSchema": {"json": {"properties": {each: {} for each in parameters}}},
    }


def test_files_are_merged_in_order_with_their_origin(folders: list[Path]) -> None:
    text = InstructionFiles(folders).read()
    order = [
        "Rules of work",
        "Remember the lighthouse",
        "神戸",
        "Rules of home",
        "Rules of machine",
    ]
    assert sorted(order, key=text.index) == order
    assert f'<instructions from="{folders[1]}/AGENT.md">' in text
    assert "not an instruction" not in text
    assert InstructionFiles([]).read() == ""


def test_the_default_folders_are_those_of_work_user_and_machine(
    monkeypatch: pytest.MonkeyPatch, folders: list[Path]
) -> None:
    monkeypatch.chdir(folders[0])
    home = folders[1].parent / "user"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "AGENT.md").write_text("Rules of the user.")
    monkeypatch.setenv("HOME", str(home))
    text = InstructionFiles().read()
    assert text.index("Rules of work") < text.index("Rules of the user")


def test_all_files_together_have_at_most_sixteen_kilobytes(
    folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    (folders[0] / "MEMORY.md").write_text("語" * 20_000)
    text = InstructionFiles(folders).read()
    assert len(text.encode()) <= 16 * 1024
    assert "[truncated: " in text
    assert "Rules of work" in text
    assert "Rules of machine" not in text
    assert "skipped an instruction file" in caplog.text


def test_what_cannot_be_read_is_left_out(
    folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    (folders[0] / "AGENT.md").write_bytes(b"\xff\xfe\x00broken")
    os.mkfifo(folders[1] / "MEMORY.md")
    text = InstructionFiles(folders).read()
    assert "broken" not in text
    assert "Rules of machine" in text
    assert "failed to read an instruction file" in caplog.text


@pytest.mark.parametrize(
    "tool_spec",
    [
        spec("file_write", "path", "content"),
        spec("shell", "command"),
        spec("editor", "command", "path"),
        spec("python_repl", "code"),
    ],
)
def test_folders_that_a_tool_can_write_to_are_refused_unless_allowed(
    folders: list[Path], tool_spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert InstructionFiles(folders).read([tool_spec]) == ""
    assert f"tools=<{tool_spec['name']}>" in caplog.text
    assert "InstructionFiles(read_only=)" in caplog.text
    allowed = InstructionFiles(folders, allow=[folders[1]]).read([tool_spec])
    assert "Rules of home" in allowed
    assert "Rules of work" not in allowed


def test_tools_that_write_nothing_refuse_nothing(folders: list[Path]) -> None:
    harmless = [
        spec("get_stock", "asin"),
        spec("file_read", "path"),
        spec("create_order", "asin"),
        spec("update_slots", "values"),
    ]
    names = [each["name"] for each in harmless]
    assert (
        InstructionFiles(folders, read_only=names).read(harmless)
        == InstructionFiles(folders).read()
        != ""
    )
    assert InstructionFiles(folders, read_only=names[1:]).read(harmless) == ""
    hinted = [{**spec("get_stock", "asin"), "annotations": {"readOnlyHint": True}}]
    assert InstructionFiles(folders).read(hinted) == InstructionFiles(folders).read()


def test_a_hard_link_and_a_link_to_a_hidden_file_are_refused(
    folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """What stands in the same folder is not therefore meant for the model."""
    linked = folders[0].parent / "linked"
    (linked / ".git").mkdir(parents=True)
    (linked / ".env").write_text("KEY=1")
    (linked / ".git" / "config").write_text("KEY=2")
    (linked / "secret").write_text("KEY=3")
    (linked / "AGENT.md").symlink_to(linked / ".env")
    (linked / "MEMORY.md").symlink_to(linked / ".git" / "config")
    (linked / ".agent-context.md").hardlink_to(linked / "secret")
    assert InstructionFiles([linked], allow=[linked]).read() == ""
    assert caplog.text.count("refused an instruction file") == 3
    (linked / "AGENT.md").unlink()
    (linked / "AGENT.md").symlink_to(linked / "notes.md")
    (linked / "notes.md").write_text("Within.")
    assert "Within." in InstructionFiles([linked]).read()


def test_a_tool_that_declares_both_is_not_read_only(folders: list[Path]) -> None:
    both = {**spec("wipe", "path"), "annotations": {"readOnlyHint": True, "destructiveHint": True}}
    assert InstructionFiles(folders).read([both]) == ""
    neither = {
        **spec("look", "path"),
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
    }
    assert InstructionFiles(folders).read([neither]) != ""


def test_only_the_packages_own_tools_are_trusted(folders: list[Path], tmp_path: Path) -> None:
    """A user's tool with the name of the package's is not trusted."""

    @tool(name="search_memory")
    def own(query: str) -> str:
        """Search."""
        return query

    def sent(*tools: Any) -> str:
        model = ScriptedModel()
        memory = MangaMemory.open("memory://", f"sqlite:///{tmp_path}/m.db", memories=not tools)
        kwargs = memory.agent_kwargs(
            user_id="u1",
            session_id="s",
            recall=True,
            task_state=True,
            instructions=InstructionFiles(folders),
        )
        agent = Agent(model=model, tools=list(tools), **kwargs)
        assert {"search_memory", "search_history", "update_slots"} <= set(agent.tool_names)
        agent("hello")
        memory.close()
        return str(model.requests[0].system_prompt_content)

    assert "Rules of work" in sent()
    assert "Rules of" not in sent(own)


def test_linked_folders_are_one(folders: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(folders[0])
    assert "Rules of work" in InstructionFiles([link]).read()
    assert InstructionFiles([folders[0], link]).read().count("Rules of work") == 1


def test_they_are_in_the_system_side_once_and_stay_as_they_were(folders: list[Path]) -> None:
    model = ScriptedModel()
    stable = StableTexts(InstructionFiles(folders))
    agent = Agent(
        model=model, system_prompt="You sell books.", plugins=[StateCoordinator(), stable]
    )
    for text in ("hello", "Is B07X1234 there?", "and now?"):
        agent(text)
        (folders[0] / "AGENT.md").write_text("Changed meanwhile.")
    prompts = [request.system_prompt_content for request in model.requests]
    assert prompts[0] == prompts[1] == prompts[2]
    assert prompts[0][0] == {"text": "You sell books."}
    assert "Rules of work" in prompts[0][1]["text"]
    assert agent.system_prompt == "You sell books."


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
