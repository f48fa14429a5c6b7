"""The fault campaign: ``python -m tests.faults --seeds 1000 --start 0``.

Each seed is a scenario on real servers: Valkey (alone, with a replica, or a cluster of three) and
the DynamoDB API, SQLite or PostgreSQL, two to five worker processes with Strands agents, and
whatever goes wrong meanwhile. Afterwards the journals of the workers are compared with what is
stored. A seed always draws the same scenario; processes and servers keep their own time, so it may
take a few repetitions until one that failed fails again.
"""

import argparse
import os
import sys
from typing import get_args

from tests.faults.scenario import Durable, Hot

_MOST_WRONGS = 12


def main() -> int:
    """Run a campaign from the command line; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--hot", choices=get_args(Hot), help="always this hot tier")
    parser.add_argument("--durable", choices=get_args(Durable), help="always this durable tier")
    options = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true"
    )
    from tests.faults.campaign import run  # takes its time, as it imports all there is
    from tests.faults.stage import Servers

    failed = 0
    with Servers() as running:
        for seed in range(options.start, options.start + options.seeds):
            result = run(seed, running, hot=options.hot, durable=options.durable)
            print(result.line, flush=True)
            for what in result.verdict.wrong[:_MOST_WRONGS]:
                print(f"  {what}", flush=True)
            if not result.passed:
                failed += 1
                print(
                    f"  {len(result.verdict.wrong)} in all; journals: {result.folder}", flush=True
                )
    print(f"{options.seeds - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
