"""Tools of the state: their schema is made once, and each agent adds its intents."""

from __future__ import annotations

from typing import Any

from strands_manga_memory import DialogueSlot, StateCoordinator
from strands_manga_memory.state.coordinator import TOOL_NAMES


def specs_of(**settings: Any) -> dict[str, Any]:
    return {tool.tool_name: tool.tool_spec for tool in StateCoordinator(**settings)._tools}


def test_what_describes_a_tool_is_made_once_for_all_agents() -> None:
    with_intents = specs_of(intents={"buy": [DialogueSlot(name="volume")]})
    without = specs_of()
    assert list(with_intents) == list(without) == list(TOOL_NAMES)
    for name, spec in without.items():
        assert "self" not in spec["inputSchema"]["json"]["properties"]
        assert spec["inputSchema"] is with_intents[name]["inputSchema"]
    assert with_intents["update_slots"]["description"].endswith(
        "Intents, with their slots: buy (volume)."
    )
    assert (
        without["update_slots"]["description"]
        == "Set the user's intent, and fill slots with values that the user gave."
    )
