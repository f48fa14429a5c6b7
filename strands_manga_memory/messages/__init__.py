"""Functions that read messages and tool results, find turns, and format messages for a model."""

from strands_manga_memory.messages.injection import injected_count
from strands_manga_memory.messages.message_parts import (
    blocks_of,
    calls_tools,
    content_fingerprint,
    fingerprint,
    id_of,
    is_message,
    is_of_tools,
    is_repair,
    is_tool_pair,
    is_turn_start,
    result_texts,
    spoken_text,
    starts_turn,
    text_of,
    tool_result_ids,
    tool_use_ids,
    turns,
)
from strands_manga_memory.messages.provider_format import for_model

__all__ = [
    "blocks_of",
    "calls_tools",
    "content_fingerprint",
    "fingerprint",
    "for_model",
    "id_of",
    "injected_count",
    "is_message",
    "is_of_tools",
    "is_repair",
    "is_tool_pair",
    "is_turn_start",
    "result_texts",
    "spoken_text",
    "starts_turn",
    "text_of",
    "tool_result_ids",
    "tool_use_ids",
    "turns",
]
