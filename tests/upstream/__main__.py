"""``python -m tests.upstream``: the tests of Strands, with our parts put in.

They come with the sources of Strands on PyPI, and are kept in the cache folder of the user. Exit
status: 0, all passed save those that ``excepted`` names; 1, others failed, or one that it names
passed or does not exist; 3, they cannot be had, or cannot be run here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.upstream.excepted import EXCEPTED, LEFT_OUT

NOT_RUN = 3
HERE = Path(__file__).parent
NEEDED = ("moto", "a2a", "openai", "tenacity")


def sources() -> Path:
    """Return the folder of the installed version's sources; download it if missing."""
    version = importlib.metadata.version("strands-agents")
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "strands-manga-memory-tests"
    )
    folder = cache / f"strands_agents-{version}"
    if not (folder / "tests").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as fetched:
            tools = [f"--with={name}" for name in ("pip", "hatchling", "hatch-vcs")]
            options = [
                "--quiet",
                "--no-deps",
                "--no-binary=:all:",
                "--no-build-isolation",
                f"--dest={fetched}",
            ]
            command = [
                "uv",
                "run",
                "--quiet",
                "--no-project",
                *tools,
                "python",
                "-m",
                "pip",
                "download",
                *options,
            ]
            subprocess.run([*command, f"strands-agents=={version}"], check=True, stdout=sys.stderr)
            with tarfile.open(next(Path(fetched).glob("*.tar.gz"))) as archive:
                archive.extractall(cache, filter="data")
    return folder


def failed(
    folder: Path, tests: list[str], parts: str, *, processes: int = 0
) -> tuple[set[str], set[str]]:
    """Run tests with parts put in; return the names of those that failed, and of all."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "UPSTREAM_PARTS": parts,
            "UPSTREAM_REPORT": report.name,
            "AWS_DEFAULT_REGION": "us-west-2",
        }
        options = [
            "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "upstream_parts", "-W",
            "ignore", "--tb=short",
        ]  # fmt: skip
        options += [
            "--no-header",
            "-n",
            str(processes),
            "--dist",
            "loadfile",
            "--continue-on-collection-errors",
        ]
        left_out = [f"--ignore=tests/strands/{name}" for name in LEFT_OUT]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *left_out, *tests],
            cwd=folder,
            env=environment,
            check=False,
            stdout=sys.stderr,
        )
        text = Path(report.name).read_text(encoding="utf-8")
    if not text:
        raise RuntimeError("pytest did not come to its end")
    outcomes = json.loads(text)
    return {name for name, outcome in outcomes.items() if outcome == "failed"}, set(outcomes)


def judged(folder: Path, tests: list[str]) -> int:
    """Run the tests, and say what became of them."""
    bad, every = failed(folder, tests or ["tests/strands"], "manager,session,storage", processes=2)
    reasons = {name: reason for reason, names in EXCEPTED.items() for name in names}
    listed = {name for name in bad if name.partition("[")[0] in reasons}
    if bad - listed:  # a busy machine makes a test of theirs fail now and then
        again = failed(folder, sorted(bad - listed), "manager,session,storage")[0]
        bad = listed | again
    alone = failed(folder, sorted(bad - listed), "none")[0] if bad - listed else set()
    ours = bad - listed - alone
    ran = {name.partition("[")[0] for name in every}
    needless = {
        name
        for name in reasons
        if name in ran and name not in {each.partition("[")[0] for each in bad}
    }
    if needless:  # a busy machine lets an excepted test pass now and then
        again = failed(folder, sorted(needless), "manager,session,storage")[0]
        needless -= {name.partition("[")[0] for name in again}
    missing = set() if tests else reasons.keys() - ran
    version = importlib.metadata.version("strands-agents")
    print(f"Strands {version}: {len(every - bad)} of {len(every)} tests passed with our parts")
    for reason, names in EXCEPTED.items():
        if found := sorted(name for name in listed if name.partition("[")[0] in names):
            print(f"\n{len(found)}: {reason}", *found, sep="\n  ")
    for what, names in (
        ("fail without our parts, too", alone),
        ("FAIL", ours),
        ("ARE EXCEPTED, AND PASS", needless),
        ("ARE EXCEPTED, AND DO NOT EXIST", missing),
    ):
        if names:
            print(f"\n{len(names)} {what}", *sorted(names), sep="\n  ")
    return 1 if ours or needless or missing else 0


def main() -> int:
    """Run them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("tests", nargs="*", help="Names of tests below tests/strands; default all")
    given = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing or shutil.which("uv") is None:
        what = ", ".join(missing) or "uv"
        print(
            f"not run: {what} is missing; uv run --group upstream python -m tests.upstream",
            file=sys.stderr,
        )
        return NOT_RUN
    try:
        folder = sources()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"not run: the sources of Strands cannot be had: {error}", file=sys.stderr)
        return NOT_RUN
    return judged(folder, given.tests)


if __name__ == "__main__":
    sys.exit(main())
