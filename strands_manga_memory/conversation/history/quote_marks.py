"""The mark of quotes from the archive, by which they are told from what was said. Pure."""

from __future__ import annotations

from strands.types.content import ContentBlock

QUOTES = "<recalled_history>"
"""How a text begins that quotes the archive."""


def is_quote(block: ContentBlock) -> bool:
    """Whether a content block quotes the archive."""
    return block.get("text", "").lstrip().startswith(QUOTES)
