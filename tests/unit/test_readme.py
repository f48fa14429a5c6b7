"""README and guides are correct: commands and Python run, links resolve."""

import re
import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

import strands_manga_memory
from strands_manga_memory.testing import ScriptedModel
from tests.benchmarks.rivals.table import BEGIN, END, in_short
from tests.support import printed_by

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted(
    [
        ROOT / "README.md",
        ROOT / "examples/README.md",
        *(ROOT / "strands_manga_memory").rglob("*.md"),
    ]
)
TEXTS = {str(guide.relative_to(ROOT)): guide.read_text(encoding="utf-8") for guide in GUIDES}
SNIPPETS = [
    pytest.param(code, shown, id=f"{guide}-{number}")
    for guide, text in TEXTS.items()
    for number, (code, shown) in enumerate(
        re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    )
]


def test_it_opens_with_two_sentences_and_two_commands() -> None:
    commands = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert [command.strip() for command in commands] == [
        "pip install uv && uv run examples/quickstart.py",
        "pip install uv && uv run pytest",
    ]
    opening = README.split("\n\n")[1]
    assert opening.count(". ") == 1
    assert opening.endswith(".")


def test_ci_runs_the_readmes_test_command() -> None:
    assert "\npip install uv && uv run pytest\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_it_shows_a_picture_five_promises_with_proofs_and_six_rows_of_the_comparison() -> None:
    assert len(re.findall(r"!\[[^\]]+\]\([^)]+\.(?:png|gif)\)", README)) == 1
    promises = re.findall(r"^- \*\*.+\[proof\]\((tests/.+?)\)", README, re.MULTILINE)
    assert len(promises) == 5
    assert all((ROOT / promise).is_file() for promise in promises)
    table = README.partition(BEGIN)[2].partition(END)[0].strip()
    assert table == in_short(
        (ROOT / "strands_manga_memory/guide/comparison.md").read_text(encoding="utf-8")
    )
    assert len(table.splitlines()) == 2 + 6


def test_every_folder_has_a_page_and_the_glossary_its_terms() -> None:
    package = ROOT / "strands_manga_memory"
    folders = {path.parent.name for path in package.glob("*/__init__.py")} - {"cli", "telemetry"}
    assert {page.parent.name for page in package.glob("*/README.md")} >= folders
    terms = re.findall(
        r"^\| \*\*(.+?)\*\* \|", TEXTS["strands_manga_memory/guide/glossary.md"], re.MULTILINE
    )
    assert len(terms) >= 30
    assert terms == sorted(set(terms))


def test_a_second_process_prints_what_the_readme_shows(tmp_path: Path) -> None:
    session = re.search(r"```console\n(.*?)```", README, re.DOTALL)
    assert session
    assert "](examples/second_process.py)" in README
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples/second_process.py", tmp_path / "examples")
    shown = re.findall(r"^\$ uv run (.+)\n((?:[^$].*\n)+)", session[1], re.MULTILINE)
    assert len(shown) == 3
    for command, output in shown:
        assert printed_by(*shlex.split(command), cwd=tmp_path) == output


def test_the_evidence_has_at_most_900_words() -> None:
    words = re.findall(r"[^\s|]+", TEXTS["strands_manga_memory/guide/evidence.md"])
    assert sum(bool(re.search(r"[^\W\d_]", word)) for word in words) <= 900


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(README.encode()) <= 6 * 1024
    prose = [
        part
        for part in re.sub(r"```.*?```|<!--.*?-->\n", "", README, flags=re.DOTALL).split("\n\n")
        if not part.startswith(("|", "- "))
    ]
    assert max(len(part.strip().splitlines()) for part in prose) <= 4


def anchors(text: str) -> set[str]:
    """Return the anchors that code hosts give to the headings of a page."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_file_and_to_a_heading_in_it() -> None:
    broken = []
    links = [(g, link) for g, t in TEXTS.items() for link in re.findall(r"\]\(([^)\s]+)\)", t)]
    for guide, link in links:
        if link.startswith(("http:", "https:")):
            continue
        path, _, heading = link.partition("#")
        target = (ROOT / guide).parent / path if path else ROOT / guide
        if not target.is_file() or (
            heading and heading not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append((guide, link))
    assert broken == []


def test_every_guide_is_linked() -> None:
    linked = {
        str((ROOT / guide).parent.joinpath(link).resolve().relative_to(ROOT))
        for guide, text in TEXTS.items()
        for link in re.findall(r"\]\(([^)\s]+\.md)\)", text)
        if not link.startswith("http")
    }
    assert linked >= set(TEXTS) - {"README.md"}


_FOLDERS = [
    "conversation", "language", "mcp", "memory", "prompt", "squad", "state", "stores", "ops",
]  # fmt: skip


_OF_OTHERS = {
    "examples/README.md",
    *(f"strands_manga_memory/guide/{name}.md" for name in ("evidence", "settings")),
}


@pytest.mark.parametrize("guide", sorted(TEXTS.keys() - _OF_OTHERS))
def test_a_page_says_where_what_it_names_is_imported_from(guide: str) -> None:
    named = set(re.findall(r"(?<![\w.])[A-Z]\w+", " ".join(re.findall(r"`[^`\n]+`", TEXTS[guide]))))
    doors = {folder: import_module(f"strands_manga_memory.{folder}").__all__ for folder in _FOLDERS}
    for name in named - set(strands_manga_memory.__all__):
        homes = [folder for folder, names in doors.items() if name in names]
        here = Path(guide).parent.name
        assert not homes or any(
            home == here or f"strands_manga_memory.{home}" in TEXTS[guide] for home in homes
        ), name


def test_the_snippets_are_found() -> None:
    assert len(SNIPPETS) >= 18


@pytest.mark.parametrize(("code", "shown"), SNIPPETS)
def test_its_python_runs_and_prints_what_is_shown(
    code: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Run a snippet.

    A shown line is printed, logged or the error; ``...`` in it replaces any text.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["chat.py", "I have a cat called Momo."])
    raised = ""
    try:
        exec(compile(code, "README.md", "exec"), {"model": ScriptedModel(["はい、あります。"] * 3)})
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
        if not shown.startswith(type(error).__name__):
            raise
    else:
        stores = re.search(r"sqlite:///|MangaMemory\.open\(", code) is not None
        assert any(tmp_path.rglob("*.sqlite3")) is stores
    seen = "\n".join([capsys.readouterr().out, *(r.getMessage() for r in caplog.records), raised])
    for line in shown.splitlines():
        assert re.search(".*?".join(map(re.escape, line.split("..."))), seen), line
