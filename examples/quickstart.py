"""A long shop conversation whose worker is killed twice, without losing a message.

The same conversation is also held with Strands' own sliding window and file session, for
comparison.

    uv run examples/quickstart.py                     # SQLite, scripted model: no keys
    uv run examples/quickstart.py --backend services  # a real Valkey and a DynamoDB emulator
    uv run examples/quickstart.py --interactive       # talk to it; /kill kills its process

The code that an application needs is in ``mangaassist/worker.py``: ``MangaMemory.from_env`` in
``main``, and ``build_agent``. Everything else starts and kills processes, and checks the results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mangaassist import dialogue, extras, interrupts

if TYPE_CHECKING:
    from mangaassist.services import Backend
    from mangaassist.survival import Conversation
    from rich.console import Console

LOCAL_TURNS = 6  # the local model takes several seconds an answer


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backend", choices=("embedded", "services"), default="embedded", help="where to keep it"
    )
    parser.add_argument(
        "--hot", metavar="URL", help="your own hot tier, such as redis://localhost:6379/0"
    )
    parser.add_argument(
        "--durable",
        metavar="URL",
        help="your own durable tier, such as dynamodb://table?region=us-east-1",
    )
    parser.add_argument(
        "--model",
        default="scripted",
        metavar="scripted|local|bedrock[:ID]",
        help="who plays the assistant",
    )
    parser.add_argument(
        "--turns",
        type=int,
        metavar="N",
        help=f"turns to hold, 1 to {len(dialogue.TURNS)} (default: all)",
    )
    parser.add_argument(
        "--session",
        default=uuid.uuid4().hex,
        metavar="ID",
        help="session to go on with (default: a new one)",
    )
    parser.add_argument(
        "--interactive", action="store_true", help="talk to the assistant in the terminal"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object on the last line"
    )
    arguments = parser.parse_args()
    if arguments.model.partition(":")[0] not in ("scripted", "local", "bedrock"):
        parser.error(
            f"--model {arguments.model}: choose scripted, local, bedrock or bedrock:<model id>"
        )
    if arguments.turns is None:
        arguments.turns = LOCAL_TURNS if arguments.model == "local" else len(dialogue.TURNS)
    if not 1 <= arguments.turns <= len(dialogue.TURNS):
        parser.error(
            f"--turns {arguments.turns}: the dialogue has 1 to {len(dialogue.TURNS)} turns"
        )
    if arguments.interactive and arguments.json:
        parser.error("--interactive and --json do not go together")
    if arguments.backend == "services" and (arguments.hot or arguments.durable):
        parser.error("--backend services brings its own stores; leave --hot and --durable out")
    return arguments


def main() -> int:
    """Run the quick start; return 0 if all checks passed, 1 if not."""
    arguments = parse_arguments()
    extras.check(services=arguments.backend == "services", model=arguments.model)
    from rich.console import Console

    console = Console(stderr=arguments.json, highlight=False)
    interrupts.install()
    try:
        return run(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started is stopped")
        return 130


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Open the stores, run the conversation, and print the results."""
    from mangaassist import recall, report, services
    from mangaassist.checks import TokenCounter
    from mangaassist.model import LOCAL_NOTE, calls_tools
    from mangaassist.services import ServiceError
    from mangaassist.survival import Conversation
    from mangaassist.worker_process import WorkerError, WorkerSettings

    console.print(
        f"MangaAssist, {arguments.model} model: {arguments.turns} turns; the worker process is"
        " killed twice"
    )
    if arguments.model == "local":
        console.print(LOCAL_NOTE)
    counter = TokenCounter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mangaassist-")))
        try:
            backend = _open_backend(arguments, folder, stack)
            settings = WorkerSettings(
                hot=backend.hot,
                durable=backend.durable,
                model=arguments.model,
                session=arguments.session,
                folder=folder,
                environment=backend.environment,
                timeout=60.0 if arguments.model == "scripted" else 600.0,
            )
            conversation = Conversation(settings, backend, counter, console.print)
            stack.callback(conversation.abort)
            found = conversation.start()
            if found:
                console.print(f"going on with a session of {found} messages")
            if arguments.interactive:
                return _chat(conversation, console)
            cut_before_call = 2 if calls_tools(arguments.model) else 1
            other = None
            if arguments.model == "scripted":
                own = Conversation(
                    replace(settings, memory="strands"),
                    services.embedded(folder),
                    counter,
                    lambda _: None,
                )
                stack.callback(own.abort)
                other = stack.enter_context(ThreadPoolExecutor(1)).submit(
                    _hold_strands, own, arguments.turns, cut_before_call
                )
            evidence = _hold(
                conversation, arguments.turns, console, cut_before_call=cut_before_call
            )
            strands = other.result() if other else None
        except (ServiceError, WorkerError) as error:
            console.print("the run failed:", str(error), markup=False)
            if arguments.json:
                report.print_json({"passed": False, "error": str(error)})
            return 1
    result = report.as_dict(
        evidence,
        backend=backend.name,
        model=arguments.model,
        token_unit=counter.unit,
        strands=strands,
    )
    report.print_table(console, evidence, result)
    recall.show(console)
    console.print(
        "\nNext: uv run strands-manga-memory demo opens the chat in a browser; README.md has the"
        " first lines of code"
    )
    if arguments.json:
        report.print_json(result)
    return 0 if evidence.passed else 1


def _open_backend(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> Backend:
    from mangaassist import services

    if arguments.backend == "services":
        return stack.enter_context(services.services(folder))
    if arguments.hot or arguments.durable:
        return services.Backend(
            "own",
            arguments.hot or services.NO_SERVER,
            arguments.durable or services.sqlite_url(folder),
        )
    return services.embedded(folder)


def _hold(conversation: Conversation, turns: int, console: Console, *, cut_before_call: int) -> Any:
    from mangaassist.survival import hold
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("turn"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("turn", total=turns)
        return hold(
            conversation,
            turns,
            cut_before_call=cut_before_call,
            on_turn=lambda number: progress.update(bar, completed=number),
            on_utterance=lambda speaker, words: progress.console.print(
                f"{speaker:>11}: {words}", markup=False, no_wrap=True, overflow="ellipsis"
            ),
        )


def _hold_strands(conversation: Conversation, turns: int, cut_before_call: int) -> Any:
    from mangaassist.survival import hold

    conversation.start()
    return hold(
        conversation,
        turns,
        cut_before_call=cut_before_call,
        on_turn=lambda _: None,
        on_utterance=lambda *_: None,
    )


def _chat(conversation: Conversation, console: Console) -> int:
    console.print(
        "Talk to MangaAssist. /kill kills its process, which then goes on in a new one; /quit ends."
    )
    while True:
        try:
            text = console.input("[bold]you>[/bold] ").strip()
        except EOFError:
            text = "/quit"
        if text == "/quit":
            conversation.close()
            return 0
        if text == "/kill":
            conversation.kill()
        elif text:
            answer = conversation.ask(text)
            console.print("[bold]manga>[/bold]", end=" ")
            console.print(answer, markup=False)


if __name__ == "__main__":
    sys.exit(main())
