"""Command ``sweep``: finalize expired sessions."""

from __future__ import annotations

import signal
import threading
import time
from typing import Annotated

import typer

from strands_manga_memory.cli.options import CodecName, Durable, Hot, Json, ModelName, Users, loaded, opened, settings_of
from strands_manga_memory.cli.output import messages, print_json
from strands_manga_memory.exceptions import StoreUnavailableError


def sweep(
    loop: Annotated[bool, typer.Option("--loop/--once", help="Repeat until SIGTERM or Ctrl-C, or sweep once.")] = False,
    every: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Seconds between two sweeps of --loop.")] = 60.0,
    limit: Annotated[int, typer.Option(min=1, help="Most conversations per tier and sweep.")] = 100,
    hot: Hot = None,
    durable: Durable = None,
    users: Users = None,
    model: ModelName = None,
    codec: CodecName = None,
    as_json: Json = False,
) -> None:
    """Flush and finalize expired sessions, and delete the logs of ended ones."""
    stop = threading.Event()
    if loop:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    memory = opened(settings_of(hot=hot, durable=durable, users=users), codec)
    sweeper = memory.sweeper(None if model is None else loaded(model))
    try:
        while True:
            start = time.monotonic()
            try:
                finished = sweeper.run_once(limit=limit)
            except StoreUnavailableError as error:
                if not loop:
                    raise
                messages.print(f"a store is unavailable, retrying: {error}", markup=False)
                finished = 0
            seconds = time.monotonic() - start
            if as_json:
                print_json({"finished": finished, "seconds": round(seconds, 3)})
            elif finished or not loop:
                messages.print(f"{finished} conversations finalized in {seconds:.1f} s")
            # A sweep that reached its limit has left some for the next one.
            if not loop or stop.wait(0.0 if finished >= limit else every):
                break
    finally:
        memory.close()
