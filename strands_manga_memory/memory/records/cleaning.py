"""Cleaning: what becomes of a text and of metadata before they are stored, and when they are told again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from strands_manga_memory.memory.pii.pii_policy import PiiPolicy
from strands_manga_memory.memory.records.memory_records import MemoryRecord
from strands_manga_memory.stores.encoding.codec import dump, load
from strands_manga_memory.stores.encoding.values import is_nested_deeper

_MOST_METADATA_BYTES, _MOST_METADATA_LEVELS = 16_384, 100


@dataclass(frozen=True)
class Cleaning:
    """Applies a policy for personal data, and cuts; what is encrypted can be read in its ``place`` only."""

    pii: PiiPolicy
    place: str
    most_characters: int

    def text(self, text: str) -> str:
        """Return a text as it is stored.

        Raises:
            PersonalDataError: The policy refuses it.
        """
        # Cut before as well as after: what is not stored anyway need not be looked at.
        text = self.pii.applied(text[: 2 * self.most_characters], place=self.place).strip()
        if len(text) > self.most_characters:
            text = f"{text[: self.most_characters]}…"
        return text.encode("utf-8", "replace").decode()

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return metadata as they are stored.

        Raises:
            ValueError: They are nested over 100 levels deep, or have over 16,384 bytes as JSON.
            PersonalDataError: The policy refuses them.
        """
        if is_nested_deeper(metadata, _MOST_METADATA_LEVELS):
            raise ValueError(f"metadata must be nested at most {_MOST_METADATA_LEVELS} levels deep, got more")
        cleaned = load(dump(self.pii.applied_to(dict(metadata), place=self.place)))
        if (size := len(dump(cleaned))) > _MOST_METADATA_BYTES:
            raise ValueError(f"metadata must have at most {_MOST_METADATA_BYTES:,} bytes as JSON, got {size:,}")
        return dict(cleaned)

    def opened_text(self, text: str) -> str:
        """Return a text as it is told."""
        return self.pii.opened(text, place=self.place)

    def opened(self, record: MemoryRecord) -> MemoryRecord:
        """Return a memory as it is told: what the policy encrypted is readable."""
        clear = self.opened_text(record.content)
        if clear is record.content and "[pii:" not in str(record.metadata.get("value", "")):
            return record
        metadata = {**record.metadata}
        if isinstance(metadata.get("value"), str):
            metadata["value"] = self.opened_text(metadata["value"])
        return replace(record, content=clear, metadata=metadata)
