"""A user returns after a week, and the greeting uses the memories of the first visit.

    uv run examples/returning_user.py                      # a SQLite file, no server
    uv run examples/returning_user.py --backend services   # Valkey and a DynamoDB emulator

The scripted model knows only the text that the memory layer adds to its request.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from mangaassist import services
from strands import Agent

from strands_manga_memory import ConversationScope, MangaMemory
from strands_manga_memory.testing import FakeClock, ScriptedModel

FIRST_VISIT = [
    "Hello! My favorite genre is horror, and please answer in English.",
    "Is volume 3 of 『Uzumaki』 in stock?",
    "My budget is 3000 yen. Thanks!",
]


def shop_model() -> ScriptedModel:
    """Return a model that answers from its request alone."""

    def reply(messages: object) -> str:
        request = model.requests[-1]
        context = f"{request.system_prompt_content}\n{request.messages[-1]['content']}".replace(
            "\\n", "\n"
        )
        last = request.messages[-1]["content"][-1][
            "text"
        ]  # the text of the user follows the added memories
        if "Uzumaki" in last:
            return "Let me check that and come back to you."
        if not last.lower().startswith("hi"):
            return "Noted."
        genre = re.search(r"- genre: (.+)", context)
        question = re.search(r"- (Is volume .+\?)", context)
        if genre is None:
            return "Welcome! What do you like to read?"
        greeting = f"Welcome back! More {genre[1]} today?"
        return f"{greeting} You had asked: {question[1]}" if question else greeting

    model = ScriptedModel(reply)
    return model


def main() -> int:
    """Run both visits; return 0 if the greeting uses memories of the first one."""
    parser = argparse.ArgumentParser(description="A user comes back after a week.")
    parser.add_argument("--backend", choices=["embedded", "services"], default="embedded")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on the last line"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="returning-user-")))
        backend = (
            stack.enter_context(services.services(folder))
            if arguments.backend == "services"
            else services.embedded(folder)
        )
        os.environ.update(backend.environment)
        clock = FakeClock(time.time() - 6 * 86_400)

        memory = MangaMemory.open(backend.hot, backend.durable, memories=True, clock=clock)
        agent = Agent(
            model=shop_model(),
            callback_handler=None,
            **memory.agent_kwargs(user_id="hanako", session_id="monday"),
        )
        for text in FIRST_VISIT:
            print(f"user>  {text}\nmanga> {str(agent(text)).strip()}")
        memory.finalize(ConversationScope("hanako", "monday"))
        memory.close()

        clock.advance(6 * 86_400)
        memory = MangaMemory.open(backend.hot, backend.durable, memories=True, clock=clock)
        agent = Agent(
            model=shop_model(),
            callback_handler=None,
            **memory.agent_kwargs(user_id="hanako", session_id="sunday"),
        )
        greeting = str(agent("Hi there!")).strip()
        print(f"\nsix days later, in a new session\nuser>  Hi there!\nmanga> {greeting}")
        report = memory.forget_user("hanako")
        print(f"\nforgotten: {report.counts}")
        memory.close()
    passed = "horror" in greeting and "Uzumaki" in greeting and report.complete
    if arguments.json:
        print(
            json.dumps(
                {
                    "passed": passed,
                    "backend": backend.name,
                    "greeting": greeting,
                    "forgotten": report.counts,
                }
            )
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
