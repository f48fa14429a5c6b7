"""Agent that answers from the messages of an earlier process.

uv run examples/second_process.py "I have a cat called Momo."
uv run examples/second_process.py "What is the name of my cat?"
"""

from __future__ import annotations

import re
import sys

from strands_manga_memory import MangaMemory
from strands_manga_memory.testing import ScriptedModel


def answer(messages: object) -> str:
    """Answer from the messages of the request, in place of a model."""
    name = re.search(r"called (\w+)\.", str(messages))
    return f"Your cat is called {name[1]}." if name else "I do not know."


with MangaMemory.open() as memory:
    model = ScriptedModel(answer)
    agent = memory.agent(model, user_id="u1", session_id="s1", callback_handler=None)
    print(agent(sys.argv[1]), end="")
