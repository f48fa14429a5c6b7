"""Agent of strands-harness with the session manager and policies of this package."""

from __future__ import annotations

from typing import Any

from strands.experimental.context_manager import ContextManager
from strands_harness import create_harness

from strands_manga_memory import MangaMemory, as_strategy
from strands_manga_memory.testing import ScriptedModel

model: Any = ScriptedModel(lambda messages: f"{len(messages)}通目です。")


def main() -> None:
    """Run one turn; the next run continues the conversation."""
    with MangaMemory.open() as memory:
        parts: dict[str, Any] = {
            **memory.agent_kwargs(user_id="hanako", session_id="s1", recall=True)
        }
        context = ContextManager(strategies=[as_strategy(parts.pop("conversation_manager"))])
        agent = create_harness(model=model, context_manager=context, callback_handler=None, **parts)
        agent("Which volumes of 寄生獣 are on my shelf?")
        print(len(agent.messages))


if __name__ == "__main__":
    main()
