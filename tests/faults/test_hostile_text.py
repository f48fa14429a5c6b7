"""No text of users, models and tools blocks the event loop or takes more than linear time."""

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strands import Agent

from strands_manga_memory import MangaMemory, PiiPolicy
from strands_manga_memory.conversation.recall import complete_question
from strands_manga_memory.language import (
    SHOP,
    RuleFactExtractor,
    RuleSessionSummarizer,
    dialogue_act,
    normalized,
)
from strands_manga_memory.language.dialogue_acts import changes_subject
from strands_manga_memory.language.open_questions import complete_answer
from strands_manga_memory.language.preferences import collect_preferences
from strands_manga_memory.language.search import search_terms, split_passages
from strands_manga_memory.language.text_features import split_sentences, text_features
from strands_manga_memory.mcp import redact_secrets
from strands_manga_memory.messages.injection import escape_line, escape_tags
from strands_manga_memory.testing import ScriptedModel
from tests.clocks import Loop
from tests.support import stub_tool
from tests.unit.patterns import UNITS
from tests.unit.session.support import tool_use

SIZE = 300_000
MOST = 0.050
"""Seconds of processor time for which the loop may stand still at a time."""

TEXTS = {
    **UNITS,
    "surrogates": "\ud800",
    "prose": "I like horror manga. Where is order B07X1234AB for $12.50? ",
    "Japanese": "私は大阪に住んでいます。『ワンピース』の第12巻を2冊ください。",
}

PIECES_OF = {
    "personal data": ("a", "x.", "1 ", "1-2 A", "東京都", "1 Main ", "東市", "A, ", "@", "0",
        "call "),
}  # fmt: skip
"""Further texts for a reader, made of what its rules begin with."""


def text_of(kind: str, size: int = SIZE) -> str:
    return repeated(TEXTS[kind], size)


def repeated(piece: str, size: int) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def said(text: str) -> list[Any]:
    return [
        {"role": role, "content": [{"text": text}], "tracking_id": role}
        for role in ("user", "assistant")
    ]


READERS: dict[str, Callable[[str], object]] = {
    "act": lambda text: dialogue_act(text, "user"),
    "subject": changes_subject,
    "traits": text_features,
    "terms": search_terms,
    "preferences": lambda text: collect_preferences([text]),
    "answers": lambda text: complete_answer(text[:300], text),
    "sentences": lambda text: list(split_sentences(text)),
    "entities": SHOP.find,
    "normalized": normalized,
    "facts": lambda text: RuleFactExtractor().extract(said(text)),
    "summary": lambda text: RuleSessionSummarizer()(
        [("user", text), ("assistant", text)], max_tokens=60
    ),
    "data": escape_line,
    "harmless": escape_tags,
    "personal data": lambda text: PiiPolicy().applied(text),
    "secrets": redact_secrets,
    "question": lambda text: complete_question(text, []),
    "passages": split_passages,
}


SUITE = ("prose", "Japanese", "spaces", "digits")
"""Kinds of texts that the suite tries with every reader; all others, and larger texts, are long."""


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("in_suite", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_text_four_times_as_long_takes_its_share(reader: str, in_suite: bool) -> None:
    """What takes less than 50 ms is not told from its share."""
    read = READERS[reader]
    pieces = [piece for kind, piece in TEXTS.items() if kind in SUITE or not in_suite]
    size = SIZE // 10 if in_suite else SIZE // 4
    slow = []
    for piece in (*pieces, *PIECES_OF.get(reader, ())):
        short, long = repeated(piece, size // 4), repeated(piece, size)
        for _ in range(3):
            taken = _seconds(read, long)
            if taken < 0.05 or taken < 8 * _seconds(read, short):
                break
        else:
            slow.append((piece[:40], taken))
    assert slow == []


@pytest.mark.parametrize("reader", ["entities", "personal data", "question"])
def test_a_rule_that_reads_a_large_text_in_a_thread_lets_others_run(reader: str) -> None:
    async def longest(text: str) -> float:
        async with Loop() as loop:
            await asyncio.to_thread(READERS[reader], text)
        return loop.longest

    slow = {}
    for kind in ("addresses", "kana"):
        tries = [MOST]
        while len(tries) < 4 and min(tries) >= MOST:
            tries.append(asyncio.run(longest(text_of(kind))))
        if min(tries) >= MOST:
            slow[kind] = tries
    assert slow == {}


def _seconds(read: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MangaMemory]:
    path: Path = tmp_path_factory.mktemp("hostile")
    url = f"sqlite:///{path}/memory.sqlite"
    opened = MangaMemory.open(hot="memory://", durable=url, memories=True, create_tables=True)
    for history in HISTORIES:  # what is imported and built once
        asyncio.run(stalled(agent_of(opened, history, uuid.uuid4().hex, "short"), *SHAPES))
    yield opened
    opened.close()


def agent_of(memory: MangaMemory, history: str, session: str, text: str) -> Agent:
    """An agent with every part on, whose tool and whose model may answer with a text."""

    fetch = stub_tool("fetch", lambda: text)

    def reply(messages: Any) -> Any:
        last = messages[-1]["content"][0]
        if "toolResult" in last:
            return "Done with it."
        if last.get("text") == "fetch it":
            return [tool_use(f"t{len(messages)}", "fetch")]
        return text if last.get("text") == "answer at length" else "ok."

    settings = memory.agent_kwargs(
        user_id="u", session_id=session, history=history, recall=True, task_state=True
    )
    return Agent(model=ScriptedModel(reply, usage=lambda _: 0), tools=[fetch], **settings)


async def stalled(agent: Agent, *turns: str) -> float:
    async with Loop() as loop:
        for turn in turns:  # an empty one is a greeting
            await agent.invoke_async(turn or "hello")
        return loop.longest


HISTORIES = ("importance", "summarize")
_SHORT = {"importance": ("Japanese", "spaces"), "summarize": ("prose",)}
"""Kinds of texts of each history that the suite tries; all others are long."""

SHAPES = ("", "fetch it", "answer at length")
"""What a user says: the text itself, or what makes a tool or the model answer with it."""


@pytest.mark.xdist_group("hostile text")  # its memory is opened once
@pytest.mark.parametrize(
    ("kind", "history"),
    [
        pytest.param(kind, history, marks=() if kind in _SHORT[history] else pytest.mark.long)
        for kind, history in itertools.product(TEXTS, HISTORIES)
    ],
)
def test_the_loop_runs_on_during_a_large_text(memory: MangaMemory, history: str, kind: str) -> None:
    text = text_of(kind)

    async def longest() -> dict[str, float]:
        found: dict[str, float] = {}
        for shape in SHAPES:
            tries = []
            while (
                len(tries) < 6 and min(tries, default=MOST) >= MOST
            ):  # a pause of the text comes again each time
                agent = agent_of(memory, history, uuid.uuid4().hex, text)
                tries.append(await stalled(agent, shape or text, "and then?"))
            found[shape] = min(tries)
        return found

    found = asyncio.run(longest())
    assert {turn: taken for turn, taken in found.items() if taken >= MOST} == {}
