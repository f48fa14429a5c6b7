"""The documentation site in a browser: search, copy buttons, no request to another host."""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

pytest.importorskip("furo", reason="the site is built with the packages of the group docs")

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1200)]


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Write no log."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the built site."""
    out = tmp_path_factory.mktemp("site") / "out"
    subprocess.run(
        [sys.executable, str(ROOT / ".ci/site.py"), f"--out={out}"], check=True, capture_output=True
    )
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Handler, directory=str(out))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, site: str) -> AsyncIterator[Page]:
    """A page that may send requests to the site only."""
    others: list[str] = []
    context = await chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    opened = await context.new_page()
    opened.set_default_timeout(30_000)
    opened.on(
        "request",
        lambda sent: None if sent.url.startswith((site, "data:")) else others.append(sent.url),
    )
    yield opened
    await context.close()
    assert others == []


@pytest.mark.parametrize(
    ("searched", "found"),
    [
        ("summary model", "strands_manga_memory/conversation/README.html"),
        ("redis down", "strands_manga_memory/ops/runbook.html"),
        ("install", "strands_manga_memory/guide/quickstart.html"),
        ("delete user", "strands_manga_memory/user_data/README.html"),
        ("ttl", "strands_manga_memory/guide/sessions.html"),
        ("MangaMemory", "api/MangaMemory.html"),
    ],
)
async def test_search_lists_the_page_that_answers_first(
    page: Page, site: str, searched: str, found: str
) -> None:
    await page.goto(f"{site}/search.html?q={searched}")
    await expect(page.locator("#search-results .search-summary")).to_contain_text("finished")
    first = await page.locator("#search-results li a").first.get_attribute("href")
    assert (first or "").partition("?")[0].partition("#")[0] == found


async def test_a_code_block_is_copied_and_a_console_session_without_its_output(
    page: Page, site: str
) -> None:
    await page.goto(f"{site}/README.html")
    block = page.locator(".highlight-console .highlight").first
    await block.hover()
    await block.locator("button.copy").click()
    await expect(block.locator("button.copy")).to_have_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    question = '"What is the name of my cat?"'
    assert copied.splitlines()[0] == f"uv run examples/second_process.py {question}"
    assert "I do not know" not in copied


@pytest.mark.parametrize("width", [390, 1300])
async def test_the_first_page_leads_to_three_ways_in(page: Page, site: str, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 844})
    await page.goto(f"{site}/index.html")
    assert await page.locator(".choices h2").all_inner_texts() == ["Try", "Adopt", "Operate"]
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.get_by_role("link", name="Runbook").last.click()
    await expect(page.locator("h1")).to_contain_text("Runbook")
