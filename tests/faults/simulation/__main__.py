"""Seeds of the simulation from the command line.

``python -m tests.faults.simulation --seeds 2000 --start 0 --set deletions`` runs one set of options,
``--opts refresh,delete`` other ones, and ``--seconds 120`` all sets in turn for that long. Seeds that fail are shrunk.
``--pairs`` lets one piece of work stand at each of its calls while another one is done, for every two of them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.faults.simulation.pairs import FIRST, SECOND, failures
from tests.faults.simulation.runs import SETS, drawn_steps, kind_of, played, shrunk
from tests.faults.simulation.world import OPTIONS, Happens


def main() -> int:
    """Run seeds; 1 if any fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many of each set")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, whatever is left")
    parser.add_argument("--set", choices=sorted(SETS), action="append", help="a set of options; default: all of them")
    parser.add_argument("--opts", help=f"options instead of a set: {', '.join(OPTIONS)}")
    parser.add_argument("--tiers", choices=["both", "hot", "durable"], default="both", help="with --opts")
    parser.add_argument("--processes", type=int, default=3, help="with --opts: so many at a time")
    parser.add_argument("--shrink", type=int, default=1, help="so many of the seeds that fail in the same way are shrunk")
    parser.add_argument("--pairs", action="store_true", help="instead of seeds")
    arguments = parser.parse_args()
    if arguments.pairs:
        return _pairs()
    sets = {name: SETS[name] for name in arguments.set or SETS}
    if arguments.opts is not None:
        sets = {"opts": _happens(arguments)}
    end = time.monotonic() + arguments.seconds
    passed, failed, kinds = Counter[str](), Counter[str](), Counter[str]()
    for seed, name in _runs(sets, arguments):
        if time.monotonic() > end:
            break
        steps, error = drawn_steps(sets[name], seed)
        if error is None:
            passed[name] += 1
            continue
        failed[name] += 1
        kinds[kind_of(error)] += 1
        print(f"{name}, seed {seed}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        if kinds[kind_of(error)] <= arguments.shrink:
            fewest = shrunk(sets[name], steps)
            print(*fewest, played(sets[name], fewest), sep="\n  ", flush=True)
    for name in sets:
        print(f"{name}: {passed[name]} passed, {failed[name]} failed")
    return 1 if failed else 0


def _pairs() -> int:
    found = [
        f"{one} / {other}, {set_}, {failure}"
        for one, other, set_ in itertools.product(FIRST, SECOND, ("everything", "durable", "hot"))
        for failure in failures(FIRST[one], SECOND[other], set_)
    ]
    print(*found, f"{len(FIRST)} times {len(SECOND)} pairs, {len(found)} failures", sep="\n")
    return 1 if found else 0


def _runs(sets: dict[str, Happens], arguments: argparse.Namespace) -> Iterator[tuple[int, str]]:
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    unending = itertools.count(arguments.start) if arguments.seconds != float("inf") else seeds
    return ((seed, name) for seed in unending for name in sets)


def _happens(arguments: argparse.Namespace) -> Happens:
    options = frozenset(filter(None, arguments.opts.split(",")))
    if unknown := options - OPTIONS.keys():
        raise SystemExit(f"no such options: {', '.join(sorted(unknown))}")
    has = {tier: arguments.tiers in ("both", tier) for tier in ("hot", "durable")}
    return Happens(options=options, most_processes=arguments.processes, **has)


if __name__ == "__main__":
    sys.exit(main())
