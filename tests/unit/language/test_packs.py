"""Language packs: patterns find their examples and reject the counterexamples."""

import re
from typing import Any

import pytest

from strands_manga_memory.language import SHOP, dialogue_act
from strands_manga_memory.language.dialogue_acts import (
    changes_subject,
    normalize_message,
    small_talk_act,
)
from strands_manga_memory.language.entities import ENTITIES
from strands_manga_memory.language.instructions import revokes_instruction
from strands_manga_memory.language.packs import ANY, EN, JA, LanguagePack, load_pack
from strands_manga_memory.language.preferences import extract_preferences
from tests.unit.patterns import entries

ENTRIES = {
    name: (entry, pattern)
    for pack in (EN, JA, load_pack("personal_data"), ENTITIES)
    for name, entry, pattern in entries(pack)
}
ACTS = {code: [entry for entry, _ in pack.table("acts")] for code, pack in (("en", EN), ("ja", JA))}
COUNTEREXAMPLES = [
    (kind, text)
    for file in ANY.files
    for kind, texts in file["counterexamples"].items()
    for text in texts
]


@pytest.mark.parametrize(
    "entry", [entry for entry, _ in ENTITIES.table("entities")], ids=lambda entry: entry["key"]
)
def test_an_entity_is_found_in_its_examples(entry: dict[str, Any]) -> None:
    assert entry["examples"]
    for example in entry["examples"]:
        assert entry["key"] in [entity.type for entity in SHOP.find(example)]


def test_every_pattern_has_an_example() -> None:
    assert len(ENTRIES) > 250
    assert [name for name, (entry, _) in ENTRIES.items() if not entry["examples"]] == []


def test_a_pattern_finds_its_examples() -> None:
    """Rules read the text as it is written or in lower case."""
    missed = []
    for name, (entry, pattern) in ENTRIES.items():
        missed += [
            (name, each)
            for each in entry["examples"]
            if not (pattern.search(each) or pattern.search(each.lower()))
        ]
    assert missed == []


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_message_is_read_as_the_act_of_its_rule(language: str) -> None:
    """No earlier rule takes an example away.

    A rule is tried only in a text with one of its cues.
    """
    rules = ACTS[language]
    assert len(rules) > 20
    for entry in rules:
        for example in entry["examples"]:
            text = example.lower()
            words = set(re.split(r"[^a-z']+", text)) if language == "en" else text
            assert any(cue in words for cue in entry["cues"]), (example, entry["cues"])
            assert (example, str(dialogue_act(example, entry["role"]))) == (example, entry["key"])


def test_an_instruction_is_found_at_the_beginning_of_a_clause_alone() -> None:
    found = [dialogue_act(f"Hi{start} never use emojis", "user") for start in ".!?;:,\n"]
    assert found == ["instruction"] * 7
    assert dialogue_act("The guides never use emojis", "user") != "instruction"


@pytest.mark.parametrize(("kind", "text"), COUNTEREXAMPLES)
def test_a_counterexample_is_left_alone(kind: str, text: str) -> None:
    """Rules inject only what they know for certain, so each of these must stay unread."""
    found = {
        "preference": bool(extract_preferences([text])),
        "instruction": dialogue_act(text, "user") == "instruction",
        "revocation": revokes_instruction(text),
        "correction": dialogue_act(text, "user") == "correction",
        "recommendation": dialogue_act(text, "assistant") == "recommendation",
        "small_talk": small_talk_act(normalize_message(text), "user") is not None,
        "subject_change": changes_subject(text),
    }
    assert not found[kind]


def test_a_pattern_of_two_languages_needs_the_same_flags() -> None:
    assert ANY.preferences.shop.flags & re.IGNORECASE
    with pytest.raises(ValueError, match="same flags"):
        _ = ANY.preferences.likes
    with pytest.raises(AttributeError, match="nothing"):
        _ = ANY.preferences.nothing


def test_an_unknown_part_is_an_error() -> None:
    data = {
        "code": "xx",
        "patterns": {"a": {"b": {"any": ["{{a.missing}}"], "examples": ["x"]}}},
        "fragments": {"a": {}},
    }
    with pytest.raises(KeyError, match="missing"):
        _ = LanguagePack(data).a.b
