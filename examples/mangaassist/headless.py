"""Application process and headless Chromium, for the screenshots and the tests of the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

APPLICATION = Path(__file__).parent
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowserError(Exception):
    """There is no Chromium on this machine."""


def chromium() -> str:
    """Return the path of Chromium, from the variable ``CHROMIUM`` or the search path.

    Raises:
        NoBrowserError: There is none.
    """
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        raise NoBrowserError(
            "no Chromium on this machine: apt-get install chromium fonts-noto-cjk, or set CHROMIUM"
            " to its path"
        )
    return found


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium without a window. Only pages of one context share cookies."""
    path = chromium()
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=path, args=["--headless=new", "--no-sandbox"]
        )
        try:
            yield started
        finally:
            await started.close()


class Application:
    """Web chat in a process of its own, with embedded stores in a folder.

    Args:
        folder: Folder of all data.
        pace: Seconds between two words of an answer.
    """

    def __init__(self, folder: Path, *, pace: float = 0.0) -> None:
        self._command = [
            sys.executable,
            str(APPLICATION),
            "--web",
            f"--folder={folder}",
            f"--pace={pace}",
        ]
        self._port = 0
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start the application. A restart uses the same address."""
        self._process = subprocess.Popen(
            [*self._command, f"--port={self._port}"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self._process.stdout.readline())
        if found is None:
            self._process.kill()
            raise RuntimeError(
                f"the application did not start; it ended with status {self._gone()}"
            )
        self.url, self._port = found[0], int(found[1])

    def kill(self) -> None:
        """End the application with SIGKILL, so that it cannot save anything."""
        self._process.kill()
        self._gone()

    def stop(self) -> int:
        """Ask the application to end, and return its exit status."""
        self._process.terminate()
        return self._gone()

    def _gone(self) -> int:
        assert self._process.stdout is not None
        status = self._process.wait(30)
        if not self._process.stdout.closed:
            # to its end, which comes when the worker of the supervisor is gone, too
            self._process.stdout.read()
            self._process.stdout.close()
        return status


@contextmanager
def application(folder: Path, *, pace: float = 0.0) -> Iterator[Application]:
    """Run the web chat, and end it."""
    running = Application(folder, pace=pace)
    try:
        yield running
    finally:
        running.stop()


async def opened(page: Page, url: str) -> None:
    """Open the chat, and wait until the page is complete."""
    await page.goto(url)
    await page.locator('#connection[data-state="connected"]').wait_for()
    await page.get_by_text("you are reader-").wait_for()


async def break_stock(page: Page, fault: str) -> None:
    """Choose a fault of the stock server, and wait until it takes effect."""
    async with page.expect_response("**/stock"):
        await page.select_option("#fault", fault)


async def say(page: Page, text: str) -> str:
    """Send a message, and return the complete answer."""
    answers = page.locator(".answer.done")
    before = await answers.count()
    await page.fill("#text", text)
    await page.click("#send")
    await answers.nth(before).wait_for()
    return await answers.nth(before).inner_text()
