"""The demo's web chat, whose sessions the other commands show."""

import http.cookiejar
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.servers import wait_until
from tests.support import run

COMMAND = [sys.executable, "-m", "strands_manga_memory.cli", "demo", "web", "--port", "0"]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_what_is_said_in_the_chat_is_found_by_the_other_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = subprocess.Popen(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert chat.stdout is not None
    try:
        found = re.search(r"http://\S+/", chat.stdout.readline())
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
        browser.open(found[0], timeout=30).close()
        body = json.dumps({"text": "My favorite genre is mystery."}).encode()
        headers = {"Content-Type": "application/json", "Origin": found[0].rstrip("/")}
        browser.open(
            urllib.request.Request(f"{found[0]}messages", body, headers), timeout=30
        ).close()

        monkeypatch.chdir(tmp_path)

        def listed() -> bool:
            return run(["users", "--json"]) == 0 and "reader-" in capsys.readouterr().out

        wait_until(listed, "the user to be listed", within=60, every=0.5)
    finally:
        chat.send_signal(signal.SIGTERM)
        assert chat.wait(60) == 0
        chat.stdout.close()
