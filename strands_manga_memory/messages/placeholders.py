"""Placeholders for missing messages in a history or a request. Pure."""

from __future__ import annotations

PLACEHOLDER = "[\u2026]"
"""Placeholder in a request for a missing message of the other role; one token in common vocabularies."""

CUT_TEXT = "[This turn was interrupted before it was finished.]"
"""Text of an interrupted turn's answer, and of a tool call's missing result."""

CONVERSATION_START = "[conversation start]"
"""User message before a history that starts with the assistant."""

NO_OUTPUT = "[no output]"
"""Text of a tool result without content."""
