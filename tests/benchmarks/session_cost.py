"""Cost of a session of 200 turns with tools, and the planted facts in its last request.

Each method that limits the history holds the same session with 4,096, 8,192 and 16,384 tokens, with
and without recall. Costs are US dollars at the prices of Claude Sonnet. ``cached``: the blocks that
a request shares with the beginning of the previous request are read from the prompt cache, all
others are written to it. ``uncached``: every request is paid in full. The tokens of a summarizer
that writes every requested fact are included. No data leaves this machine.
"""

import json
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from strands import tool

from strands_manga_memory import MangaMemory
from strands_manga_memory.conversation import default_counter
from strands_manga_memory.stores import InMemoryHotStore
from strands_manga_memory.testing import Request, ScriptedModel
from tests.benchmarks import progress
from tests.unit.session.support import tool_use

TURNS = 200
BUDGETS_OF_HISTORY = (4_096, 8_192, 16_384)
WAYS = ("importance", "summarize")

_INPUT, _OUTPUT, _READ, _WRITE = 3.00, 15.00, 0.30, 3.75
"""US dollars for a million tokens: input, output, read from the prompt cache, written to it."""

_DOLLARS = 2.0

BUDGETS: dict[str, str | float] = {
    **{f"{way}_4096_dollars": _DOLLARS for way in WAYS},
    **{f"{way}_{tokens}_recall_over_plain": 1.1 for way in WAYS for tokens in BUDGETS_OF_HISTORY},
    **{f"{way}_{tokens}_facts_of_10": ">= 10" for way in WAYS for tokens in BUDGETS_OF_HISTORY},
    **{f"{way}_{tokens}_facts_lost_by_recall": 0 for way in WAYS for tokens in BUDGETS_OF_HISTORY},
}

FACTS = {
    3: ("My favorite genre is gothic horror.", "gothic horror"),
    14: ("配達先は神戸市灘区の実家です。", "灘区"),
    22: ("My order number is ORD-55120.", "ORD-55120"),
    35: ("私は猫アレルギーなので、猫の出る作品は避けたいです。", "猫アレルギー"),
    41: ("Correction: my budget is 7,250 yen, not 5,000.", "7,250"),
    56: ("夫の誕生日は11月22日です。", "11月22日"),
    63: ("My daughter Hina reads with me.", "Hina"),
    78: ("第21巻だけ初版でほしいです。", "21巻"),
    84: ("I decided to take the box set of Uzumaki.", "Uzumaki"),
    117: ("支払いはカードではなく代引きにしてください。", "代引き"),
}
"""Statements of the user by turn, and the value that the last request must have.
Turns 11 to 20, 31 to 40 ... are Japanese.
"""

QUESTION = (
    "Before I order: what do you know about me and my orders? 私の希望と配達先も確認してください。"
)

_TITLES = (
    *("The Lighthouse Keeper", "Paper Lanterns", "Iron Orchard", "Seven Bridges", "Quiet Harbor",
        "The Glass Garden"),
    *("霧の郵便局", "星降る図書館", "銀の竜", "月の庭", "春の階段", "青い列車"),
)  # fmt: skip
_ENGLISH = (
    "Is {title} in stock at the moment?",
    "What is {title} about, and is it more of a slow story?",
    "Which volume of {title} came out last?",
    "Thanks! And which one would you read after {title}?",
    "How do the printed ones of {title} compare with the digital ones?",
    "Okay, thank you.",
)
_JAPANESE = (
    "{title}の在庫はありますか。",
    "{title}はどんな話ですか。絵はきれいですか。",
    "{title}の最新刊はいつ出ましたか。",
    "なるほど。{title}のほかにも似たものはありますか。",
    "{title}の紙の本と電子版では、どちらがおすすめですか。",
    "ありがとうございます。",
)
_ENGLISH_ANSWERS = (
    (
        "{title} runs to {number} volumes so far, and most readers begin with the first one and"
        " stay until the end."
    ),
    (
        "The printed edition of {title} costs {number}00 yen a volume, and the digital one is a"
        " little cheaper."
    ),
    (
        "The art is quiet and detailed, and the chapters in the middle move much faster than the"
        " opening."
    ),
    (
        "Chapter {number} is the one that people talk about, so I would not look it up before you"
        " get there."
    ),
    (
        "If you like the mood of {title}, there are {number} other titles on the same shelf that"
        " feel similar."
    ),
    (
        "We received {number} copies last week, and I can set one aside for you at the counter if"
        " you wish."
    ),
)
_JAPANESE_ANSWERS = (
    "{title}は現在{number}巻まで刊行されていて、最初の巻から読む方がほとんどです。",
    "{title}の紙の版は1冊{number}00円で、電子版のほうが少しお求めやすくなっています。",
    "静かな場面と大きな場面の対比がよく描かれていて、後半で一気に物語が動きます。",
    "第{number}話が特に話題になりましたので、先に調べずに読まれることをおすすめします。",
    "{title}の雰囲気がお好きでしたら、似た作品が同じ棚に{number}点ございます。",
    "先週{number}冊入荷しましたので、よろしければ店頭でお取り置きいたします。",
)
_SYSTEM = (
    "You are MangaAssist, the shop assistant of an online manga store. You answer in the language"
    " of the customer, in a few friendly sentences, about titles, volumes, stock, orders,"
    " deliveries and returns. Look titles up with the tools before you name prices or stock. Never"
    " promise a delivery date that a tool did not return. Ask before you place an order. " * 4
)


@tool
def search_catalogue(title: str) -> str:
    """Search the catalogue of the shop for a title and return its volumes with stock, price and
    shelf.

    Args:
        title: The title, in English or Japanese.
    """
    draw = random.Random(title)
    volumes = [
        {
            "volume": number,
            "title": title,
            "price": draw.randrange(400, 900),
            "stock": draw.randrange(9),
            "shelf": f"S{number}",
        }
        for number in range(1, 13)
    ]
    return json.dumps({"found": len(volumes), "volumes": volumes}, ensure_ascii=False)


@dataclass
class Cost:
    """Dollars of all requests of a session so far, with a prompt cache and without."""

    cached: float = 0.0
    uncached: float = 0.0

    def add(self, *, read: int, new: int, output: int) -> None:
        """Add a request: tokens read from the cache, other input tokens, and output tokens."""
        self.cached += (read * _READ + new * _WRITE + output * _OUTPUT) / 1e6
        self.uncached += ((read + new) * _INPUT + output * _OUTPUT) / 1e6


class Session:
    """One session of 200 turns, held by an agent of the layer.

    Args:
        way: Method that limits the history, as in ``MangaMemory.agent(history=)``.
        max_tokens: Budget of the history.
        recall: Whether evicted messages are quoted.
        folder: Folder of the session.
    """

    def __init__(self, way: str, max_tokens: int, *, recall: bool, folder: str) -> None:
        self._sizes: dict[str, int] = {}
        self._draw = random.Random(7)
        self._is_japanese, self._title = False, _TITLES[0]
        self.model = ScriptedModel(
            self._reply, usage=lambda messages: sum(map(default_counter().count, messages))
        )
        self.summarizer = ScriptedModel(lambda messages: self._summary())
        self._memory = MangaMemory.open(
            hot=InMemoryHotStore(), durable=f"sqlite:///{folder}/session.sqlite3"
        )
        self.agent = self._memory.agent(
            self.model,
            user_id="u",
            session_id="s",
            history=way,
            max_tokens=max_tokens,
            recall=recall,
            tools=[search_catalogue],
            system_prompt=_SYSTEM,
            aux_model=self.summarizer,
            callback_handler=None,
        )

    def hold(self) -> dict[str, float]:
        """Hold the session; return cost, planted facts in the last request, and request sizes."""
        for turn in range(1, TURNS):
            self.agent(self._user_text(turn))
        self.agent(QUESTION)
        self._memory.close()
        last = "\n".join(text for text, _ in self._blocks(self.model.requests[-1]))
        sizes = [sum(size for _, size in self._blocks(request)) for request in self.model.requests]
        summaries = self._cost_of_summaries()
        cost = self._cost()
        return {
            "dollars": cost.cached + summaries.uncached,
            "dollars_uncached": cost.uncached + summaries.uncached,
            "dollars_of_summaries": summaries.uncached,
            "facts_of_10": sum(value in last for _, value in FACTS.values()),
            "mean_tokens": sum(sizes) / len(sizes),
            "requests": len(sizes),
        }

    def _user_text(self, turn: int) -> str:
        self._is_japanese = (turn - 1) // 10 % 2 == 1
        templates = _JAPANESE if self._is_japanese else _ENGLISH
        titles = _TITLES[6:] if self._is_japanese else _TITLES[:6]
        self._title = self._draw.choice(titles)
        asked = templates[turn % len(templates)].format(title=self._title)
        return f"{FACTS[turn][0]} {asked}" if turn in FACTS else asked

    def _reply(self, messages: Any) -> Any:
        last = messages[-1]["content"]
        text = last[-1].get("text", "")
        if (
            title := next((title for title in _TITLES if title in text), None)
        ) and self._draw.random() < 1 / 3:
            return [tool_use(f"call-{len(self.model.requests)}", "search_catalogue", title=title)]
        sentences = self._draw.sample(
            _JAPANESE_ANSWERS if self._is_japanese else _ENGLISH_ANSWERS, 4
        )
        return (" " * (not self._is_japanese)).join(
            sentence.format(title=self._title, number=self._draw.randrange(2, 90))
            for sentence in sentences
        )

    def _summary(self) -> str:
        asked = self.summarizer.requests[-1].system_prompt or ""
        facts = re.findall(r"^- (.+)$", asked, re.MULTILINE)
        return " ".join(
            [
                "The user asked about several manga titles.",
                *(f"{fact.rstrip('.。')}." for fact in facts),
            ]
        )

    def _cost(self) -> Cost:
        cost, before = Cost(), list[tuple[str, int]]()
        for request, answer in zip(self.model.requests, self._answers(), strict=True):
            blocks = self._blocks(request)
            same = next(
                (
                    at
                    for at, (now, then) in enumerate(zip(blocks, before, strict=False))
                    if now != then
                ),
                None,
            )
            same = min(len(blocks), len(before)) if same is None else same
            cost.add(read=_total(blocks[:same]), new=_total(blocks[same:]), output=answer)
            before = blocks
        return cost

    def _cost_of_summaries(self) -> Cost:
        cost = Cost()
        for request in self.summarizer.requests:
            asked = _total(self._blocks(request))
            cost.add(read=0, new=asked, output=300)
        return cost

    def _answers(self) -> Iterator[int]:
        """Yield the tokens of each answer: some 110 for a text, some 40 for a tool call."""
        for at, request in enumerate(self.model.requests):
            following = (
                self.model.requests[at + 1].messages if at + 1 < len(self.model.requests) else []
            )
            is_call = bool(following) and any("toolResult" in b for b in following[-1]["content"])
            yield 40 if is_call and len(request.messages) else 110

    def _blocks(self, request: Request) -> list[tuple[str, int]]:
        """Return the parts of a request with their tokens, in the order of the prompt."""
        parts = [json.dumps(request.tool_specs, sort_keys=True), request.system_prompt or ""]
        parts += [
            _written(message["role"], block)
            for message in request.messages
            for block in message["content"]
        ]
        return [(part, self._size(part)) for part in parts]

    def _size(self, text: str) -> int:
        if text not in self._sizes:
            self._sizes[text] = default_counter().count(
                {"role": "user", "content": [{"text": text}]}
            )
        return self._sizes[text]


def _written(role: str, block: Mapping[str, Any]) -> str:
    text = (
        block["text"] if "text" in block else json.dumps(block, ensure_ascii=False, sort_keys=True)
    )
    return f"{role}: {text}"


def _total(blocks: Sequence[tuple[str, int]]) -> int:
    return sum(size for _, size in blocks)


def _measured(case: tuple[str, int, bool]) -> dict[str, float]:
    way, tokens, recall = case
    with tempfile.TemporaryDirectory() as folder:
        return Session(way, tokens, recall=recall, folder=folder).hold()


def run() -> dict[str, float]:
    """Return the numbers of every method and budget, with and without recall."""
    cases = [
        (way, tokens, recall)
        for way in WAYS
        for tokens in BUDGETS_OF_HISTORY
        for recall in (False, True)
    ]
    rows: dict[str, float] = {}
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(_measured, cases)
        for way, tokens, recall in progress(cases, "sessions of 200 turns"):
            prefix = f"{way}_{tokens}{'_recall' if recall else ''}"
            rows |= {f"{prefix}_{name}": value for name, value in next(found).items()}
    for way in WAYS:
        for tokens in BUDGETS_OF_HISTORY:
            plain, recalled = f"{way}_{tokens}", f"{way}_{tokens}_recall"
            rows[f"{plain}_recall_over_plain"] = (
                rows[f"{recalled}_dollars"] / rows[f"{plain}_dollars"]
            )
            rows[f"{plain}_facts_lost_by_recall"] = max(
                0, rows[f"{plain}_facts_of_10"] - rows[f"{recalled}_facts_of_10"]
            )
    return rows
