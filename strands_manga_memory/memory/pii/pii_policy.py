"""PiiPolicy: what becomes of personal data before anything is remembered. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strands_manga_memory.exceptions import PersonalDataError
from strands_manga_memory.language.pii import DEFAULT_RULES, Action, PiiRule, replace_personal_data
from strands_manga_memory.lazy import expression
from strands_manga_memory.stores.encoding.codec import Cipher

_SEALED = expression(r"\[pii:([a-z_]+):([A-Za-z0-9+/=]+)\]")


class PiiPolicy:
    """What becomes of personal data in a text before anything of it is stored.

    Args:
        rules: The rules, tried in order. Default ``DEFAULT_RULES``; ``()`` keeps everything.
        actions: Actions by name of rule, over those of the rules: ``{"card": "refuse"}``.
        cipher: Encrypts for rules whose action is ``encrypt``, and opens on reading.

    Raises:
        ValueError: An action is unknown, names no rule, or is ``encrypt`` without a cipher.
    """

    def __init__(
        self,
        rules: tuple[PiiRule, ...] = DEFAULT_RULES,
        *,
        actions: Mapping[str, Action] | None = None,
        cipher: Cipher | None = None,
    ) -> None:
        wanted = dict(actions or {})
        unknown = sorted(set(wanted) - {rule.name for rule in rules})
        if unknown:
            raise ValueError(f"actions must name rules, got {unknown}; there are {sorted({rule.name for rule in rules})}")
        self._rules = tuple(replace(rule, action=wanted.get(rule.name, rule.action)) for rule in rules)
        if cipher is None and any(rule.action == "encrypt" for rule in self._rules):
            raise ValueError("cipher must be given for the action 'encrypt', such as AesGcmCipher(...)")
        self._cipher = cipher

    def applied(self, text: str, *, place: str = "") -> str:
        """Return a text with its personal data replaced.

        Args:
            text: The text.
            place: Whose data it is; what is encrypted can be read only there.

        Raises:
            PersonalDataError: A rule refuses it. Its message names the rule, not the data.
        """
        return replace_personal_data(text, self._rules, lambda rule, found: self._replacement(rule, found, place))

    def _replacement(self, rule: PiiRule, found: str, place: str) -> str:
        if rule.action == "refuse":
            raise PersonalDataError(f"the text holds personal data ({rule.name}), which the policy refuses to store")
        if rule.action == "encrypt" and self._cipher is not None:
            sealed = base64.b64encode(self._cipher.encrypt(found.encode(), place)).decode("ascii")
            return f"[pii:{rule.name}:{sealed}]"
        return f"[{rule.name}]"

    def applied_to(self, value: Any, *, place: str = "") -> Any:
        """Return a value with every text in it, keys of dicts too, treated by ``applied``."""
        if isinstance(value, str):
            return self.applied(value, place=place)
        if isinstance(value, Mapping):
            return {self.applied(str(key), place=place): self.applied_to(item, place=place) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.applied_to(item, place=place) for item in value]
        return value

    def opened(self, text: str, *, place: str = "") -> str:
        """Return a text with what was encrypted for ``place`` in the clear; what cannot be opened is ``[name]``."""
        if "[pii:" not in text:
            return text

        def clear(match: re.Match[str]) -> str:
            try:
                if self._cipher is not None:
                    return self._cipher.decrypt(base64.b64decode(match[2]), place).decode()
            except ValueError:
                pass
            return f"[{match[1]}]"

        return _SEALED.sub(clear, text)
