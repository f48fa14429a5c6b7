"""Tools with which the model reads and changes the state: slots, entities and goals."""

from __future__ import annotations

from collections.abc import Callable, Collection

from strands import tool
from strands.tools.decorator import DecoratedFunctionTool

from strands_manga_memory.exceptions import StateError
from strands_manga_memory.language.pii import redact_identifiers
from strands_manga_memory.state.tool_calls import Parts

TOOL_NAMES = ("read_conversation_state", "update_slots", "note_entity", "manage_goal")
"""Names of all tools."""

_NOTHING = "Nothing is known yet."


class StateTools:
    """Tools bound to the accessors of a state. An invalid value returns an error result that names the rule.

    They are methods, so that the tool specifications are built once, not for every agent.
    """

    def __init__(self, parts: Parts, rendered: Callable[[], str]) -> None:
        self._parts = parts
        self._rendered = rendered

    def named(self, names: Collection[str]) -> list[DecoratedFunctionTool[..., str]]:
        """Return the tools with these names."""
        found: dict[str, DecoratedFunctionTool[..., str]] = {name: getattr(self, name) for name in TOOL_NAMES if name in names}
        if (slots := found.get("update_slots")) is not None and (intents := self._parts.dialogue.intents):
            known = "; ".join(f"{name} ({', '.join(slot.name for slot in of)})" for name, of in intents.items())
            spec = slots.tool_spec
            slots.tool_spec = {**spec, "description": f"{spec['description']} Intents, with their slots: {known}."}
        return list(found.values())

    @tool
    def read_conversation_state(self) -> str:
        """Read the state of the conversation: intent, known and missing slots, mentioned entities, goals."""
        return self._rendered() or _NOTHING

    @tool(description="Set the user's intent, and fill slots with values that the user gave.")
    def update_slots(self, intent: str = "", values: dict[str, str] | None = None, confirmed: bool = False) -> str:  # noqa: FBT001, FBT002
        """Set the user's intent, and fill slots with values that the user gave.

        Args:
            intent: Intent of the user; leave it out to keep the current one.
            values: Slot names and values.
            confirmed: True only if the user gave or confirmed these values.
        """
        dialogue = self._parts.dialogue
        if intent and dialogue.intents and intent not in dialogue.intents:
            raise StateError(f"intent must be one of {', '.join(dialogue.intents)}; got {intent!r:.80}")
        if intent:
            dialogue.set_intent(intent)
        problems = []
        for name, value in (values or {}).items():
            try:
                if redact_identifiers(str(value)) != str(value):
                    raise StateError(f"{name!r:.80} is not stored: cards, accounts, passwords and document numbers never are")
                dialogue.fill_slot(name, value, confirmed=confirmed)
            except StateError as error:
                problems.append(str(error))
        if problems:
            raise StateError("; ".join(problems))
        missing, question = dialogue.missing_slots(), dialogue.layer.next_question
        # The request shows the state at the beginning of the turn, so the result returns the current one.
        if not missing:
            filled = [f"{slot.name} = {slot.value}" for slot in dialogue.layer.slots.values() if slot.value is not None]
            about = f" for the intent {dialogue.layer.intent}" if dialogue.layer.intent else ""
            return f"Nothing is missing{about}{': ' if filled else ''}{', '.join(filled)}."
        return f"Still missing: {', '.join(missing)}." + (f" Ask the user next: {question}" if question else "")

    @tool
    def note_entity(self, type: str, value: str) -> str:  # noqa: A002 - the model's word for it
        """Note the entity that the user means now, such as the ASIN of the chosen book; it replaces the one of its type.

        Args:
            type: Type of the entity, such as asin, order_id, volume, title.
            value: Its value.
        """
        entity = self._parts.entities.set(type, value, confirmed=False)
        return f"Noted: {entity.type} {entity.value}."

    @tool
    def manage_goal(self, action: str, text: str = "", id: str = "", depends_on: list[str] | None = None) -> str:  # noqa: A002
        """Set, complete or fail the goal of the conversation, note a finding, or work on its subtasks.

        Args:
            action: One of set, complete, fail, finding, add_subtask, complete_subtask, fail_subtask.
            text: The goal, its outcome, the finding, the subtask, or its result.
            id: Id of the subtask.
            depends_on: Ids of subtasks that must be completed before this one.
        """
        goals, text = self._parts.goals, redact_identifiers(text)
        actions: dict[str, Callable[[], object]] = {
            "set": lambda: goals.set(text),
            "complete": lambda: goals.complete(text),
            "fail": lambda: goals.fail(text),
            "finding": lambda: self._parts.execution.add_finding(text),
            "add_subtask": lambda: goals.add_subtask(id, text, depends_on=depends_on or ()),
            "complete_subtask": lambda: goals.complete_subtask(id, text),
            "fail_subtask": lambda: goals.fail_subtask(id, text),
        }
        if action not in actions:
            raise StateError(f"action must be one of {', '.join(actions)}; got {action!r:.80}")
        actions[action]()
        ready = [each.id for each in goals.ready_subtasks()]
        return f"Done. Subtasks that can be worked on: {', '.join(ready) or 'none'}."
