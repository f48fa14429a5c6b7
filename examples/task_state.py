"""A reorder over several turns, whose process is killed in the middle and resumed by another one.

    uv run examples/task_state.py            # a SQLite file, no server
    uv run examples/task_state.py --json     # one JSON object on the last line

Each turn runs in a child process, which is killed with SIGKILL while a tool is running. The model
is scripted: it reads the book, the volume and the next question in its request. At the end a human
takes over.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mangaassist import catalogue
from strands import Agent, tool

from strands_manga_memory import DialogueSlot, MangaMemory, PromptCacheMonitor
from strands_manga_memory.state import coordinator_of, export_for_human
from strands_manga_memory.testing import ScriptedModel

ASIN = "B07X3105"
REORDER = [
    DialogueSlot(name="volume", question="Which volume would you like?", entity="volume"),
    DialogueSlot(name="format", question="Paper or digital?", allowed=("paper", "digital")),
    DialogueSlot(name="order", question="Which order was it?", entity="order_id"),
]
BEFORE = [
    f"I have just finished {ASIN}, it was lovely.",
    "I would like to reorder it for a friend.",
    "Volume 2, please.",
    "On paper.",
]
KILLED = "Is it in stock?"
AFTER = ["Hello, are you still there? Is it in stock?", "Let me talk to a human, please."]


# --- the child: one agent, one turn a line --------------------------------------------------------


def scripted_model(*, hangs: bool) -> tuple[ScriptedModel, list[Any]]:
    """Return a model that answers from its request alone, and its tools."""

    @tool
    def get_stock(asin: str, volume: int) -> str:
        """Return how many copies of a volume there are.

        Args:
            asin: The series.
            volume: The volume.
        """
        if hangs:
            print(json.dumps({"tool": "get_stock"}), flush=True)
            threading.Event().wait()  # until this process is killed
        return json.dumps(catalogue.stock(asin, volume))

    def reply(messages: Any) -> Any:
        blocks = messages[-1]["content"]
        state = _state_text(messages)
        questions = re.findall(r"Ask the user next: (.+)", state)
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        if results and '"copies"' in results[0]["content"][0]["text"]:
            found = json.loads(results[0]["content"][0]["text"])
            return (
                f"{found['copies']} copies of {found['asin']}, volume {found['volume']}, are in"
                " stock."
            )
        question = "" if results else blocks[-1]["text"]
        is_on_paper = bool(results) or "format = paper" in state
        if "reorder" in question:
            return [_use("update_slots", messages, intent="reorder")]
        if "On paper" in question and not is_on_paper:
            return [_use("update_slots", messages, values={"format": "paper"}, confirmed=True)]
        asin, volume = re.search(r"asin (\w+)", state), re.search(r"volume = (\d+)", state)
        if asin is not None and volume is not None and is_on_paper and "in stock" in question:
            return [_use("get_stock", messages, asin=asin[1], volume=int(volume[1]))]
        if "human" in question:
            return "A colleague will be with you in a moment."
        return questions[-1] if questions else "I am glad you liked it."

    return ScriptedModel(reply), [get_stock]


def _state_text(messages: Any) -> str:
    """Return the state in a request: before the user's text, or after the tool results."""
    at = max(
        at
        for at, message in enumerate(messages)
        if message["role"] == "user" and "text" in message["content"][-1]
    )
    texts = [
        block["text"]
        for block in messages[at]["content"]
        if "<conversation_state>" in block.get("text", "")
    ]
    results = [
        block["toolResult"]
        for message in messages[at:]
        for block in message["content"]
        if "toolResult" in block
    ]
    return "\n".join([*texts, *(item["text"] for result in results for item in result["content"])])


def _use(name: str, messages: Any, **given: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": f"call-{len(messages)}", "name": name, "input": given}}


def worker(folder: Path, *, hangs: bool) -> None:
    """Answer each line of standard input with one agent."""
    memory = MangaMemory.open(durable=f"sqlite:///{folder}/sessions.sqlite3")
    arguments = memory.agent_kwargs(
        user_id="keiko", session_id="1", task_state={"intents": {"reorder": REORDER}}
    )
    monitor = PromptCacheMonitor()
    model, tools = scripted_model(hangs=hangs)
    arguments["plugins"].append(monitor)
    agent = Agent(
        model=model,
        tools=tools,
        system_prompt="You sell manga.",
        callback_handler=None,
        **arguments,
    )
    coordinator = coordinator_of(agent)
    assert coordinator is not None
    for line in sys.stdin:
        answer = str(agent(line.strip())).strip()
        if "human" in line:
            coordinator.dialogue.set_phase("handoff")
        print(
            json.dumps(
                {
                    "answer": answer,
                    "phase": coordinator.dialogue.phase,
                    "slots": {
                        slot.name: slot.value for slot in coordinator.dialogue.slots.values()
                    },
                    "turns": coordinator.dialogue.turn_count,
                    "state": _state_text(model.requests[-1].messages),
                    "stored_clean": "conversation_state" not in json.dumps(agent.messages),
                    "prefix_stability": monitor.stats()["prefix_stability"],
                    "export": export_for_human(agent, reason="the user asked for it").to_markdown(),
                }
            ),
            flush=True,
        )
    memory.close()


# --- the parent: the user, and who kills ----------------------------------------------------------


@contextmanager
def process(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker."""
    command = [sys.executable, __file__, "--worker", str(folder), *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        if child.stdin is not None and child.poll() is None:
            child.stdin.close()


def ask(child: subprocess.Popen[str], text: str) -> dict[str, Any]:
    """Send a message to a worker, and return the next line of its output."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{text}\n")
    child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"the worker ended with status {child.wait()}")
    return dict(json.loads(line))


def main() -> int:
    """Run the conversation; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on the last line"
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--hangs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        worker(options.worker, hangs=options.hangs)
        return 0
    seen: list[dict[str, Any]] = []

    def talk(child: subprocess.Popen[str], text: str) -> dict[str, Any]:
        print(f"user:      {text}")
        found = ask(child, text)
        if "answer" in found:
            seen.append(found)
            print(f"assistant: {found['answer']}")
        return found

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with process(folder, "--hangs") as child:
            for text in BEFORE:
                talk(child, text)
            in_tool = talk(child, KILLED)
            child.send_signal(signal.SIGKILL)
            print(
                f"-- {in_tool['tool']} was running when its process {child.pid} was killed (status"
                f" {child.wait()})"
            )
        with process(folder) as child:
            for text in AFTER:
                talk(child, text)
    restored, last = seen[len(BEFORE)], seen[-1]
    print("\n-- the state in the request after the restart")
    print(restored["state"])
    print("\n-- what the human gets")
    print(last["export"])
    volume = catalogue.stock(ASIN, 2)
    checks = {
        "asked for what was missing": seen[1]["answer"] == "Which volume would you like?",
        "asked for the next thing": seen[2]["answer"] == "Paper or digital?",
        "slots survived the kill": (
            restored["slots"] == {"volume": "2", "format": "paper", "order": None}
        ),
        "a pronoun was answered from an entity": (
            restored["answer"] == f"{volume['copies']} copies of {ASIN}, volume 2, are in stock."
        ),
        "turns went on being counted": last["turns"] == len(BEFORE) + len(AFTER),
        "nothing of it was stored as history": all(each["stored_clean"] for each in seen),
        "the prompt's prefix stayed the same": all(
            each["prefix_stability"] == 1.0 for each in seen
        ),
        "a human can take over": (
            last["phase"] == "handoff"
            and ASIN in last["export"]
            and "Which order was it?" in last["export"]
        ),
    }
    for check, passed in checks.items():
        print(f"{'ok    ' if passed else 'FAILED'} {check}")
    if options.json:
        print(
            json.dumps(
                {"passed": all(checks.values()), "checks": checks, "answer": restored["answer"]}
            )
        )
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
