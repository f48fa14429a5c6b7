"""Removal of personal data from texts before they are stored, and limits of the texts' length."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from strands_manga_memory.arguments import checked
from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.language.pii import DEFAULT_RULES, Action, PiiRule, replace_personal_data
from strands_manga_memory.memory.records import MemoryRecord
from strands_manga_memory.stores.codec import Cipher, dump, is_nested_deeper, load

_SEALED = re.compile(r"\[pii:([a-z_]+):([A-Za-z0-9+/=]+)\]")


_MAX_CHARACTERS = 4_000
"""Most characters of a stored text."""
_MAX_METADATA_BYTES, _MAX_METADATA_LEVELS = 16_384, 100


class PiiPolicy:
    """Policy for personal data in texts that are stored.

    Rules find personal data. The action of a rule replaces the data, encrypts it, or refuses the
    text.

    Args:
        rules: Detection rules, in order. Default: those of the package, to which
            ``(*PiiPolicy().rules, rule)`` adds one. With ``()``, all texts are stored unchanged.
        actions: Actions by rule name, instead of the rules' own: ``{"card": "refuse"}``.
        cipher: Cipher for the action ``encrypt``, and for decryption when texts are read.

    Attributes:
        rules: The rules, with the actions of this policy.
        storage_key: Key of the user's memories in the table, set by ``of_user``. Empty without a
            user.

    Raises:
        ValueError: An action is unknown, belongs to no rule, or needs a cipher that is not given.
    """

    @checked
    def __init__(
        self,
        rules: tuple[PiiRule, ...] = DEFAULT_RULES,
        *,
        actions: Mapping[str, Action] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        wanted = dict(actions or {})
        names = {rule.name for rule in rules}
        if unknown := sorted(set(wanted) - names):
            raise ValueError(f"actions must name rules, got {unknown}; there are {sorted(names)}")
        self.rules = tuple(
            replace(rule, action=wanted.get(rule.name, rule.action)) for rule in rules
        )
        if cipher is None and any(rule.action == "encrypt" for rule in self.rules):
            raise ValueError(
                "cipher must be given for the action 'encrypt', such as AesGcmCipher(...)"
            )
        self._cipher = cipher
        self.storage_key = ""

    def __repr__(self) -> str:
        return f"PiiPolicy(actions={ {rule.name: rule.action for rule in self.rules} })"

    def of_user(self, storage_key: str) -> PiiPolicy:
        """Return a copy of the policy for the texts of one user.

        Encrypted data are bound to ``storage_key``, the partition key of the user's memories in the
        table: only a policy with the same ``storage_key`` can decrypt them.
        """
        policy = copy(self)
        policy.storage_key = storage_key
        return policy

    def applied(self, text: str) -> str:
        """Return a text with its personal data replaced by names such as ``[card]``, or encrypted.

        Raises:
            PersonalDataError: A rule refuses the text. The message names the rule, not the data.
        """
        return replace_personal_data(text, self.rules, self._replacement)

    def _replacement(self, rule: PiiRule, found: str) -> str:
        if rule.action == "refuse":
            raise PersonalDataError(
                f"the text holds personal data ({rule.name}), which the policy refuses to store"
            )
        if rule.action == "encrypt" and self._cipher is not None:
            sealed = base64.b64encode(
                self._cipher.encrypt(found.encode(), self.storage_key)
            ).decode("ascii")
            return f"[pii:{rule.name}:{sealed}]"
        return f"[{rule.name}]"

    def parts_of_data(self, values: Collection[str], text: str) -> set[str]:
        """Return those ``values`` that a text contains only as parts of personal data.

        For example, ``ken`` is returned if the text has it only in ``ken@example.com``.
        """

        def cleaned(one: str) -> str:
            without = replace_personal_data(one, self.rules, lambda rule, _: f"[{rule.name}]")
            return without.casefold()

        given, rest = text.casefold(), cleaned(text) if values else ""
        return {each for each in values if (own := cleaned(each)) in given and own not in rest}

    def applied_to(self, value: Any) -> Any:
        """Apply the policy to all texts in a JSON value, including the keys of objects."""
        return _map_texts(self.applied, value)

    def opened(self, text: str) -> str:
        """Decrypt the personal data that the policy has encrypted in a text.

        A part that cannot be decrypted is replaced by the name of its rule, such as ``[card]``.
        """
        if "[pii:" not in text:
            return text

        def clear(match: re.Match[str]) -> str:
            try:
                if self._cipher is not None:
                    return self._cipher.decrypt(
                        base64.b64decode(match[2]), self.storage_key
                    ).decode()
            except ValueError:
                pass
            return f"[{match[1]}]"

        return _SEALED.sub(clear, text)

    def text(self, text: str) -> str:
        """Apply the policy for personal data to a text, and truncate it after 4,000 characters.

        Raises:
            PersonalDataError: The policy refuses the text.
        """
        # Truncated first, too, because the policy need not check text that is not stored.
        text = self.applied(text[: 2 * _MAX_CHARACTERS]).strip()
        if len(text) > _MAX_CHARACTERS:
            text = f"{text[:_MAX_CHARACTERS]}…"
        return text.encode("utf-8", "replace").decode()

    def metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Apply the policy for personal data to metadata and return them as JSON values.

        Raises:
            ValueError: The metadata is nested over 100 levels deep, or has over
                16,384 bytes as JSON.
            PersonalDataError: The policy refuses the metadata.
        """
        if is_nested_deeper(metadata, _MAX_METADATA_LEVELS):
            raise ValueError(
                f"metadata must be nested at most {_MAX_METADATA_LEVELS} levels deep, got more"
            )
        cleaned = load(dump(self.applied_to(dict(metadata))))
        if (size := len(dump(cleaned))) > _MAX_METADATA_BYTES:
            raise ValueError(
                f"metadata must have at most {_MAX_METADATA_BYTES:,} bytes as JSON, got {size:,}"
            )
        return dict(cleaned)

    def opened_record(self, record: MemoryRecord) -> MemoryRecord:
        """Return a memory with its personal data decrypted."""
        if "[pii:" not in f"{record.content}{record.metadata}":
            return record
        metadata = _map_texts(self.opened, record.metadata)
        return replace(record, content=self.opened(record.content), metadata=metadata)


def _map_texts(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _map_texts(change, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(change, item) for item in value]
    return value


def mask_encrypted(text: str) -> str:
    """Replace encrypted personal data in a text by the names of their rules, such as ``[card]``."""
    return _SEALED.sub(r"[\1]", text)
