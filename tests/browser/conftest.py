"""The web chat as a process, and one headless Chromium with a context for each visitor."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from mangaassist import headless
from playwright.async_api import Browser, Page

NewPage = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[headless.Application]:
    """A running web chat; its visitors are strangers to one another."""
    with headless.application(tmp_path_factory.mktemp("app"), pace=0.02) as running:
        yield running
        assert running.stop() == 0


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    async with headless.browser() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def visit(chromium: Browser, app: headless.Application) -> AsyncIterator[NewPage]:
    """Opens the chat as a new visitor.

    In the end no page may have had an error, or shown a dialog.
    """
    problems: list[str] = []

    def observe(page: Page) -> Page:
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                problems.append(f"console: {message.text}") if _is_problem(message) else None
            ),
        )
        return page

    async with AsyncExitStack() as stack:

        async def new_page(url: str = app.url, *, same_visitor_as: Page | None = None) -> Page:
            if same_visitor_as is not None:
                context = same_visitor_as.context
            else:
                context = await stack.enter_async_context(
                    await chromium.new_context(viewport={"width": 1300, "height": 900})
                )
            page = observe(await context.new_page())
            page.set_default_timeout(30_000)
            await headless.opened(page, url)
            return page

        yield new_page
    assert problems == []


def _is_problem(message: Any) -> bool:
    """Whether a browser's complaint is a problem, which one about a killed server is not."""
    return message.type == "error" and "net::ERR_" not in message.text
