"""MangaAssist: a shop assistant with three agents, all memory parts, and failing servers.

    uv run examples/mangaassist                 # chat in the terminal; scripted models, no keys
    uv run examples/mangaassist --web           # chat in the browser, beside a view of the memory
    uv run examples/mangaassist --demo --json   # two users, a failing server, a restart
    uv run examples/mangaassist --model local   # a small local model; or bedrock[:ID]

All data is in SQLite files of one folder, so a restart continues where the last run ended.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mangaassist import extras, interrupts

if TYPE_CHECKING:
    from mangaassist.services import Backend

PORT = 8765


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(
        prog="mangaassist",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--web", action="store_true", help="serve the web chat on 127.0.0.1")
    how.add_argument(
        "--demo", action="store_true", help="hold two users' conversations, and check them"
    )
    model = os.environ.get("MANGAASSIST_MODEL", "scripted")
    parser.add_argument(
        "--model",
        default=model,
        metavar="scripted|local|bedrock[:ID]",
        help="who plays the agents (also MANGAASSIST_MODEL)",
    )
    parser.add_argument(
        "--backend", choices=("embedded", "services"), default="embedded", help="where to keep it"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="PATH",
        help="files of the embedded stores (default: .manga_memory)",
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=1_600,
        metavar="TOKENS",
        help="history of each agent (default: 1600)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="N",
        help=f"of --web; 0: a free one (default: {PORT})",
    )
    parser.add_argument(
        "--pace",
        type=float,
        default=0.02,
        metavar="SECONDS",
        help="between words of scripted models",
    )
    parser.add_argument(
        "--user",
        default="reader",
        metavar="ID",
        help="who you are in the terminal (default: reader)",
    )
    parser.add_argument(
        "--json", action="store_true", help="with --demo: one JSON object on the last line"
    )
    parser.add_argument(
        "--worker", type=int, nargs=2, metavar="FD", help=argparse.SUPPRESS
    )  # from the supervisor
    arguments = parser.parse_args()
    if arguments.demo and "--model" not in sys.argv:
        arguments.model = "scripted"
    if arguments.model.partition(":")[0] not in ("scripted", "local", "bedrock"):
        parser.error(
            f"--model {arguments.model}: choose scripted, local, bedrock or bedrock:<model id>"
        )
    if arguments.budget < 400:
        parser.error(f"--budget {arguments.budget}: at least 400 tokens")
    if not 0 <= arguments.port <= 65_535:
        parser.error(f"--port {arguments.port}: 0 to 65535")
    if arguments.pace < 0:
        parser.error(f"--pace {arguments.pace}: 0 seconds or more")
    if not arguments.user.strip():
        parser.error("--user: give a name")
    if arguments.json and not arguments.demo:
        parser.error("--json goes with --demo")
    if arguments.demo and arguments.model != "scripted":
        parser.error("--demo checks what the scripted models say; leave --model out")
    return arguments


def main() -> int:
    """Run the application, and return its exit status: 0, 1 (a check failed) or 130 (interrupt)."""
    arguments = parse_arguments()
    extras.check(services=arguments.backend == "services", model=arguments.model, application=True)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("strands.tools.mcp").setLevel(
        logging.CRITICAL
    )  # calls that fail are what breakers are for
    if arguments.web and arguments.worker is None:
        from mangaassist.web import worker_supervisor

        try:
            listening = worker_supervisor.listen(arguments.port)
        except OSError as error:
            extras.stop(
                f"--port {arguments.port}: {error.strerror}; choose another one, or 0 for a"
                " free one"
            )
        return worker_supervisor.run_workers(
            [sys.executable, str(Path(__file__).resolve().parent), *sys.argv[1:]], listening
        )
    interrupts.install()
    try:
        return run(arguments)
    except KeyboardInterrupt:
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Open the stores, and run the requested interface or demonstration."""
    from mangaassist import services

    with ExitStack() as stack:
        folder = arguments.folder or Path(".manga_memory")
        if arguments.demo and arguments.folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mangaassist-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            backend = services.embedded(folder)
            if arguments.backend == "services":
                files = stack.enter_context(tempfile.TemporaryDirectory(prefix="mangaassist-"))
                backend = stack.enter_context(services.services(Path(files)))
        except services.ServiceError as error:
            extras.stop(str(error))
        os.environ.update(backend.environment)
        if arguments.demo:
            from mangaassist import demo

            return demo.run(backend, folder, budget=arguments.budget, as_json=arguments.json)
        return _open(arguments, backend, folder, stack)


def _open(arguments: argparse.Namespace, backend: Backend, folder: Path, stack: ExitStack) -> int:
    """Open the shop for the terminal or the browser."""
    from mangaassist.assistant.opening import open_shop
    from mangaassist.model import LOCAL_NOTE
    from mangaassist.web.visitors import Visitors

    if arguments.model == "local":
        print(LOCAL_NOTE)
    visitors = Visitors(folder / "visitors.sqlite3")
    stack.callback(visitors.close)
    if arguments.web:
        from mangaassist.web import server, worker_supervisor

        listening = stack.enter_context(worker_supervisor.open_inherited_socket(*arguments.worker))
        shop = stack.enter_context(
            open_shop(
                backend, folder, model=arguments.model, budget=arguments.budget, pace=arguments.pace
            )
        )
        server.serve(
            shop,
            visitors,
            listening,
            ready=lambda url: print(f"MangaAssist is open at {url}", flush=True),
        )
        return 0
    from mangaassist import terminal

    shop = stack.enter_context(
        open_shop(
            backend, folder, model=arguments.model, budget=arguments.budget, pace=arguments.pace
        )
    )
    return terminal.chat(shop, visitors, arguments.user)


if __name__ == "__main__":
    sys.exit(main())
