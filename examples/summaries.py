"""Conversation of 200 turns with and without summaries, with a plot of the tokens in each request.

    uv run examples/summaries.py                          # a table: no keys, no servers
    uv run --with matplotlib examples/summaries.py --plot context.png

Model and summarizer are scripted. The summarizer writes one sentence and omits every fact. The
facts are still in the last request, because the package appends missing facts to a summary.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

from strands_manga_memory import MangaMemory
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.testing import ScriptedModel

FACTS = {
    1: "My name is Keiko and I collect ghost stories.",
    12: "My order ORD-55120 has not arrived yet.",
    30: "I prefer hardcover editions, please.",
    47: "配達先は神戸市灘区です。",
    66: "No, I meant order ORD-55210.",
    90: "The gate code of our building is 4417.",
    131: "Please reserve 3 copies of the lighthouse atlas.",
    170: "Actually, make it 5 copies of the lighthouse atlas.",
}
STILL_TRUE = ("Keiko", "ghost stories", "hardcover", "灘区", "ORD-55210", "4417", "5 copies")
NO_LONGER = ("ORD-55120", "3 copies")

ANSWER = (
    "That one is in stock. It tells of a town by the sea, of the people who keep its light, and of"
    " what they find in the cellar of the post office. Readers praise the quiet pace and the"
    " drawings of the weather. The paperback is cheaper, the hardcover has a fold-out map; both"
    " leave our depot within two days, and returns are free for a month. "
)


def prompt(turn: int) -> str:
    """Return the message of the user in a turn."""
    return FACTS.get(
        turn,
        f"And what can you tell me about number {turn} on your list? Is it a slow story? How is it"
        " drawn?",
    )


def held(arguments: dict[str, Any], turns: int) -> Iterator[tuple[Agent, int]]:
    """Run the conversation; yield the agent and the tokens of its window after every turn."""
    writer = ScriptedModel(
        lambda _: "The user asked about many series, and the assistant described them."
    )
    agent = Agent(
        model=ScriptedModel(lambda _: ANSWER), aux_model=writer, callback_handler=None, **arguments
    )
    for turn in range(1, turns + 1):
        agent(prompt(turn))
        if hasattr(agent.conversation_manager, "finish"):
            agent.conversation_manager.finish(
                agent
            )  # a user takes longer to type than this model to summarize
        yield agent, sum(map(default_counter().count, agent.messages))


def plot(file: Path, without: list[int], with_summaries: list[int]) -> None:
    """Write both curves to a PNG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit(
            "--plot needs matplotlib: pip install matplotlib, or uv run --with matplotlib ..."
        ) from None
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="turn", ylabel="tokens of history")
    axes.plot(range(1, len(without) + 1), without, label="without summaries")
    axes.plot(range(1, len(with_summaries) + 1), with_summaries, label='history="summarize"')
    axes.legend()
    figure.savefig(file, dpi=120)


def main() -> int:
    """Run both conversations; return 0 if all valid facts were found, and no corrected one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--turns", type=int, default=200, metavar="N", help="turns to hold (default: 200)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="where to write a plot")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error(f"--turns must be at least 1, got {options.turns}")
    logging.getLogger("strands_manga_memory").setLevel(logging.ERROR)
    print(f"{options.turns} turns without summaries ...", file=sys.stderr)
    without = [
        tokens
        for _, tokens in held({"conversation_manager": NullConversationManager()}, options.turns)
    ]
    print(f"{options.turns} turns with summaries ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3")
        found = list(
            held(
                memory.agent_kwargs(user_id="keiko", session_id="1", history="summarize"),
                options.turns,
            )
        )
        memory.close()
    agent, with_summaries = found[-1][0], [tokens for _, tokens in found]
    shown = "\n".join(
        block["text"]
        for message in agent.messages
        for block in message["content"]
        if "text" in block
    )
    stats = agent.conversation_manager.stats()
    for turn in (10, 30, 50, 80, 120, 200):
        if turn <= options.turns:
            print(
                f"turn {turn:>3}: {without[turn - 1]:>6,} tokens without,"
                f" {with_summaries[turn - 1]:>5,} with summaries"
            )
    print(
        f"summaries written: {stats.swapped}; the summarizer read and wrote {stats.tokens_spent:,}"
        " tokens"
    )
    if options.plot:
        plot(options.plot, without, with_summaries)
        print(f"plot: {options.plot}")
    lost = [value for value in STILL_TRUE if value not in shown]
    stale = [value for value in NO_LONGER if value in shown]
    if options.turns >= max(FACTS) + 25:
        print(f"lost: {lost or 'nothing'}; told although corrected: {stale or 'nothing'}")
        return 1 if lost or stale else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
