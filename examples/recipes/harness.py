"""An agent of strands-harness, with its shell and sub-agents, whose session and history are ours."""

from __future__ import annotations

from typing import Any

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel

model: Any = ScriptedModel(lambda messages: f"{len(messages)}通目です。")


def main() -> None:
    """Hold a turn; the next run goes on where this one ended."""
    with MangaMemory.open() as memory:
        agent = memory.harness(model, user_id="hanako", session_id="s1", recall=True, callback_handler=None)
        agent("Which volumes of 寄生獣 are on my shelf?")
        print(len(agent.messages))


if __name__ == "__main__":
    main()
