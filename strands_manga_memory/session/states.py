"""States: what is stored of an agent or orchestrator beside its messages, and how two versions of it merge. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from strands_manga_memory.stores.codec import dump, load

AGENT = "state.agent"
INTERRUPTS = "state.interrupts"
META = "meta"
ORCHESTRATOR = "state.multi"
_MERGED_BY_KEY = (META, AGENT)


def is_interrupted(fields: Mapping[str, bytes]) -> bool:
    """Tell whether an agent waits for the answer to an interrupt."""
    return bool(INTERRUPTS in fields and load(fields[INTERRUPTS]).get("activated"))


def run_waits(fields: Mapping[str, bytes]) -> bool:
    """Tell whether an orchestrator's run waits for the answer to an interrupt."""
    return ORCHESTRATOR in fields and load(fields[ORCHESTRATOR]).get("status") == "interrupted"


def rebased(ours: Mapping[str, bytes], *, before: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return their states with what ours changed ``before``: some by key, a run as a whole, the others not at all."""
    fields = dict(theirs)
    for name in _MERGED_BY_KEY:
        if name in ours:
            fields[name] = merged(ours[name], before=before.get(name), theirs=theirs.get(name))
    if ORCHESTRATOR in ours:  # a run is one thing; the later one stands
        fields[ORCHESTRATOR] = ours[ORCHESTRATOR]
    return fields


def merged(ours: bytes, *, before: bytes | None, theirs: bytes | None) -> bytes:
    """Return the object ``theirs`` with the top-level keys that changed between ``before`` and ``ours``."""
    old, new, result = load(before or b"{}"), load(ours), load(theirs or b"{}")
    result |= {key: value for key, value in new.items() if key not in old or old[key] != value}
    return dump({key: value for key, value in result.items() if key in new or key not in old})
