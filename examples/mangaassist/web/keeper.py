"""Keeper: holds the web chat's port, and starts a new worker whenever one was killed. POSIX only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine only; port 0 takes a free one.

    Raises:
        OSError: The port is taken.
    """
    return socket.create_server((HOST, port))


def keep(command: Sequence[str], listening: socket.socket) -> int:
    """Run workers on the socket, one after the other, until one ends otherwise than by SIGKILL; return its exit status.

    Connections that come while there is none wait in the socket. A worker that loses its keeper kills itself.
    """
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        for worker in running:
            worker.send_signal(signal.SIGTERM)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, pass_on)
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        alive, held = os.pipe()
        fds = (listening.fileno(), alive)
        worker = subprocess.Popen(
            [*command, "--worker", *map(str, fds)], pass_fds=fds, start_new_session=True
        )  # Ctrl-C comes by the keeper alone
        running[:] = [worker]
        os.close(alive)
        status = worker.wait()
        os.close(held)
    return status


def taken_over(listening: int, alive: int) -> socket.socket:
    """Return the keeper's socket, in a worker; when the keeper is gone, so is the worker, as suddenly."""

    def watch() -> None:
        os.read(alive, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return socket.socket(fileno=listening)
