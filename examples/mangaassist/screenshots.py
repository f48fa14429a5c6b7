"""Take the README's screenshots: a bilingual chat, a failing server, a killed worker, a phone.

    uv run --group browser examples/mangaassist/screenshots.py

It needs Chromium and a Japanese font: apt-get install chromium fonts-noto-cjk
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.async_api import Page

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mangaassist.headless import application, break_stock, browser, opened, say

FOLDER = Path(__file__).resolve().parents[1] / "screenshots"
TALK = (
    "My favorite genre is mystery.",
    "Recommend me something to read.",
    "『猫と踏切番』3巻は在庫ありますか？",
    "Show me all volumes of The Night-Round Detective of Glass Town.",
    "静かな料理の漫画を探しています。",
    "I would like to buy it.",
    "Volume 2, please.",
)
FAILING = tuple(f"『猫と踏切番』{volume}巻は在庫ありますか？" for volume in (1, 2, 4, 3))


async def take() -> None:
    """Run the conversation and take the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, application(Path(folder), pace=0.02) as running:
        async with browser() as chromium:
            page = await chromium.new_page(
                viewport={"width": 1320, "height": 900}, color_scheme="light"
            )
            await opened(page, running.url)
            for text in TALK:
                await say(page, text)
            await picture(page, "chat.png")
            await break_stock(page, "error")
            for text in FAILING:
                await say(page, text)
            await page.locator('[data-tool="get_stock"] .open').wait_for()
            await picture(page, "breaker.png")
            await break_stock(page, "none")
            await page.click("#kill")
            await page.locator("#restored:not([hidden])").wait_for()
            await page.locator("#restored").scroll_into_view_if_needed()
            await picture(page, "restored.png")
            await page.set_viewport_size({"width": 390, "height": 844})
            chat = await page.screenshot()
            await page.click("#panel")
            await page.locator("#memories").scroll_into_view_if_needed()
            save("phone.png", chat, await page.screenshot())


async def picture(page: Page, name: str) -> None:
    """Take a picture of a page."""
    save(name, await page.screenshot())


def save(name: str, *pictures: bytes) -> None:
    """Save pictures next to each other in one small file with few colours."""
    taken = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures]
    gap = 16
    sheet = Image.new(
        "RGB", (sum(each.width + gap for each in taken) - gap, taken[0].height), "white"
    )
    for number, each in enumerate(taken):
        sheet.paste(each, (number * (each.width + gap), 0))
    sheet.quantize(64).save(FOLDER / name, optimize=True)
    print(f"{name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    asyncio.run(take())
