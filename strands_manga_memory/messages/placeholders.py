"""Placeholders: texts that stand in a history or a request where a message is missing. Pure."""

from __future__ import annotations

PLACEHOLDER = "[\u2026]"
"""Stands in a request where a message of the other role is missing; one token in common vocabularies."""

CUT_TEXT = "[This turn was interrupted before it was finished.]"
"""Ends a turn that has no answer, and is the result of a tool call that has none."""

CONVERSATION_START = "[conversation start]"
"""The user's message before a history that starts with the assistant."""

NO_OUTPUT = "[no output]"
"""The text of a tool result without content."""
