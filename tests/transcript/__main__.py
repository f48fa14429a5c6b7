"""Print the requests that the model received in a shop conversation of 40 turns.

uv run python -m tests.transcript en             # what is new in each request
uv run python -m tests.transcript ja --whole 20  # and all of the last request of turn 20
uv run python -m tests.transcript en --rebuild   # an agent built for each turn
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from strands_manga_memory.testing import Request

from .conversation import hold


def main() -> None:
    """Hold the conversation and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("language", choices=("en", "ja"))
    parser.add_argument("--rebuild", action="store_true", help="build the agent anew for each turn")
    parser.add_argument(
        "--whole",
        type=int,
        action="append",
        default=[],
        metavar="TURN",
        help="print all of this turn's last request",
    )
    parser.add_argument(
        "--history", default="importance", choices=("importance", "summarize", "compact")
    )
    parser.add_argument("--max-tokens", type=int, default=2_048)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before: list[str] = []
        system = ""
        turns = hold(
            Path(folder),
            arguments.language,
            rebuild=arguments.rebuild,
            history=arguments.history,
            **({} if arguments.history == "compact" else {"max_tokens": arguments.max_tokens}),
        )
        for exchange in turns:
            print(f"\n===== turn {exchange.number}: {exchange.user}")
            for request in exchange.requests:
                system = _print_system(request, system)
                before = _print_changes(request, before)
            if exchange.number in arguments.whole:
                print("----- the whole last request")
                print("\n".join(before))


def _print_system(request: Request, before: str) -> str:
    """Print the system prompt if it changed, and return it."""
    content = request.system_prompt_content
    text = request.system_prompt or "" if not content else "\n".join(_block(b) for b in content)
    if text != before:
        print(f"[system]\n{text}")
    return text


def _print_changes(request: Request, before: list[str]) -> list[str]:
    """Print the blocks that are new, and those that are gone, since the request before.

    Return the blocks as text.
    """
    now = [f"[{m['role']}] {_block(block)}" for m in request.messages for block in m["content"]]
    same = next(
        (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new),
        min(len(before), len(now)),
    )
    print(
        f"-- request of {len(request.messages)} messages, {len(now)} blocks; the first {same} of"
        f" {len(before)} as before"
    )
    for text in before[same:]:
        if text not in now:
            print(f"  gone  {text[:100]!r}")
    for text in now[same:]:
        if text not in before:
            print("  " + text.replace("\n", "\n      "))
    return now


def _block(block: Any) -> str:
    """Return a content block as a reader wants to see it."""
    if "text" in block:
        return str(block["text"])
    return json.dumps(block, ensure_ascii=False)


if __name__ == "__main__":
    main()
