"""Parent process of the web chat, which holds the port and restarts a killed worker (POSIX)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket that listens only on this machine. Port 0 selects a free one.

    Raises:
        OSError: The port is taken.
    """
    return socket.create_server((HOST, port))


def run_workers(command: Sequence[str], listening: socket.socket) -> int:
    """Run workers on the socket until one does not end by SIGKILL, and return its exit status.

    Connections wait in the socket while there is no worker. A worker that loses its parent kills
    itself.
    """
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        for worker in running:
            worker.send_signal(signal.SIGTERM)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, pass_on)
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        read_end, write_end = os.pipe()
        fds = (listening.fileno(), read_end)
        worker = subprocess.Popen(
            [*command, "--worker", *map(str, fds)], pass_fds=fds, start_new_session=True
        )  # Ctrl-C reaches only this process
        running[:] = [worker]
        os.close(read_end)
        status = worker.wait()
        os.close(write_end)
    return status


def open_inherited_socket(listening: int, parent_pipe: int) -> socket.socket:
    """Return the parent's socket in a worker. The worker kills itself when its parent is gone."""

    def watch() -> None:
        os.read(parent_pipe, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return socket.socket(fileno=listening)
