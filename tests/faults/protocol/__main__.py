"""Run the simulation: ``python -m tests.faults.protocol --set everything --seeds 1000``."""

import argparse
import time
import traceback
from collections import Counter

from tests.faults.protocol.runs import OPTIONS, SETS, kind_of, play, shrink


def main() -> int:
    """Run seeds of a set of options and print the broken promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="everything", choices=sorted(SETS))
    parser.add_argument("--options", help=f"instead of a set: {','.join(OPTIONS)}")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    options = (
        SETS[given.set]
        if given.options is None
        else frozenset(filter(None, given.options.split(",")))
    )
    began, failed, passed = time.time(), Counter[str](), 0
    for seed in range(given.start, given.start + given.seeds):
        if time.time() - began > given.seconds:
            break
        ops, error = play(seed, options, most=given.most, steps=given.steps)
        if error is None:
            passed += 1
            continue
        failed[kind_of(error)] += 1
        if failed[kind_of(error)] > 2:
            continue
        print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        if given.trace:
            traceback.print_exception(error)
        if given.shrink:
            fewer = shrink(seed, options, ops, most=given.most)
            print("\n".join(f"    {op}," for op in fewer), flush=True)
    print(
        f"{passed} of {passed + sum(failed.values())} passed in {time.time() - began:.0f} s;"
        f" {dict(failed)}"
    )
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
