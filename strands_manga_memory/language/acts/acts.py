"""Dialogue acts: what a message does in the conversation, read from its words, in English and Japanese.

The rules are data: small regular expressions, tried in a fixed order. They are plain and quick (some ten microseconds a
message) and know nothing of the conversation around the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from strands_manga_memory.language.acts import acts_japanese, courtesy_english
from strands_manga_memory.language.acts.act_rules import DialogueAct, Rule
from strands_manga_memory.language.acts.acts_english import ENGLISH
from strands_manga_memory.language.acts.acts_japanese import JAPANESE
from strands_manga_memory.language.acts.asking import statements
from strands_manga_memory.language.acts.instructions import STANDING, STANDING_JAPANESE, TAKEN_BACK, TAKEN_BACK_JAPANESE

_ENGLISH_RULES = {
    role: tuple(rule for rule in (*TAKEN_BACK, *STANDING, *ENGLISH) if rule.role == role) for role in ("user", "assistant")
}
_JAPANESE_RULES = {
    role: tuple(rule for rule in (*TAKEN_BACK_JAPANESE, *STANDING_JAPANESE, *JAPANESE) if rule.role == role)
    for role in ("user", "assistant")
}
_ENGLISH_CUES = {
    role: frozenset[str]().union(*(rule.cues | rule.also for rule in rules)) for role, rules in _ENGLISH_RULES.items()
}
_RULES_OF_CUE = {
    role: {cue: [at for at, rule in enumerate(rules) if cue in rule.cues] for cue in _ENGLISH_CUES[role]}
    for role, rules in _ENGLISH_RULES.items()
}
_DIGITS = "0123456789"
_SPACED = bytes(code if code < 128 and (chr(code).isalpha() or chr(code) == "'") else 32 for code in range(256))
_APART = re.compile(r"(?<! ) +(?=(?:'(?:s|m|re|ve|ll|d)|n't)\b)")

_HEAD, _TAIL = 600, 200
"""Of a long text only so many characters of its beginning and its end are read."""


def dialogue_act(text: str, role: str) -> DialogueAct:
    """Say what a message does.

    A greeting, farewell or acknowledgement is one only if nearly nothing else is said: "Hi, do you have volume 12?" is a
    question. Of a text over 800 characters only the first 600 and the last 200 are read.

    Args:
        text: The text of the message.
        role: ``"user"`` or ``"assistant"``; recommendations come from assistants, preferences, corrections, constraints and
            decisions from users.

    Returns:
        The act, ``DialogueAct.UNMATCHED`` if no rule knows it.
    """
    text = plain(text)
    return _courtesy(text, role) or _by_rule(text, role, is_english=text.isascii()) or DialogueAct.UNMATCHED


def courtesy(text: str, role: str) -> DialogueAct | None:
    """Return the act of a message that has nearly nothing but words of courtesy, such as a greeting; None for any other."""
    return _courtesy(plain(text), role)


def _courtesy(text: str, role: str) -> DialogueAct | None:
    return courtesy_english.courtesy(text, role) if text.isascii() else acts_japanese.courtesy(text)


def plain(text: str) -> str:
    """Return a text as the rules read it: lower case, plain apostrophes, contractions joined, a long one without its middle."""
    text = text.strip()
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = text.lower().replace("\u2019", "'")
    return _APART.sub("", text) if " '" in text or " n't" in text else text


_STATES = frozenset({DialogueAct.PREFERENCE, DialogueAct.FACT})


def _by_rule(text: str, role: str, *, is_english: bool) -> DialogueAct | None:
    for rule in _candidates(text, role, is_english=is_english):
        if rule.pattern.search(text) and (role != "user" or rule.act not in _STATES or rule.pattern.search(statements(text))):
            return rule.act
    return None


def _candidates(text: str, role: str, *, is_english: bool) -> Iterator[Rule]:
    """Yield the rules whose cues are in a text, in their order."""
    if not is_english:
        yield from (rule for rule in _JAPANESE_RULES.get(role, ()) if any(cue in text for cue in rule.cues))
    rules = _ENGLISH_RULES.get(role, ())
    words = _ENGLISH_CUES.get(role, frozenset()).intersection(
        text.encode("ascii", "replace").translate(_SPACED).decode().split()
    )
    if not words:
        return
    if any(map(text.__contains__, _DIGITS)):
        words |= {"0"}
    by_cue = _RULES_OF_CUE[role]
    for at in sorted({at for word in words for at in by_cue.get(word, ())}):
        rule = rules[at]
        if not rule.also or not words.isdisjoint(rule.also):
            yield rule
