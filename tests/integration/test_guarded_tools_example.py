"""The example of guarded tools: its story is true, and its picture can be drawn."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_story_and_its_timeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import guarded_tools

    monkeypatch.setattr(guarded_tools, "RESET_AFTER", 1.0)
    monkeypatch.setattr(guarded_tools, "PAUSE", 0.0)
    told = guarded_tools.story(talk=False)
    came = [what for _, tool, what in told.calls if tool == "stock"]
    assert came == ["success", *["tool_error"] * 5, "stale", "circuit_open", "tool_error", "circuit_open", "success", "success"]
    assert {what for _, tool, what in told.calls if tool == "price"} == {"success"}
    assert [state for _, state in told.states] == ["closed", "open", "half_open", "open", "half_open", "closed"]
    assert "hunter2" not in " ".join(told.results)
    picture = tmp_path / "timeline.png"
    guarded_tools.plot(told).savefig(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
