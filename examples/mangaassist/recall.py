"""Selection and recall in a conversation that is longer than its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strands import Agent
from strands.hooks import MessageAddedEvent

from strands_manga_memory import HistoryRecall, ImportanceWeightedConversationManager
from strands_manga_memory.testing import ScriptedModel

if TYPE_CHECKING:
    from rich.console import Console

BUDGET = 300
TALK = (
    "Hello, I am looking for something to read.",
    "毎回、税込価格で教えてください。",
    "My order number is MNG-20417 and it goes to the shop in Umeda.",
    "返品や配送のきまりを全部教えてください。",
    *(
        f"And what do people say about shelf {number} of the second hand corner, is it worth a"
        " look?"
        for number in range(12)
    ),
)
RULES = "".join(
    (
        "ご案内いたします。営業時間は店舗によって異なりますので、各店舗の案内をご覧ください。" * 6,
        "返品は到着から八日以内であれば送料無料で承ります。",
        "包装紙の色は季節ごとに変わります。" * 8,
    )
)
QUESTION = "返品は何日以内ならできますか。"


def show(console: Console) -> None:
    """Print the outcome of the first messages, and the passage quoted for a question."""
    model = ScriptedModel(
        lambda messages: RULES if TALK[3] in str(messages[-1]["content"]) else "Let me see. " * 8
    )
    agent = Agent(
        model=model,
        conversation_manager=ImportanceWeightedConversationManager(BUDGET),
        plugins=[HistoryRecall(200)],
        callback_handler=None,
    )
    texts: dict[str, str] = {}

    def note(event: MessageAddedEvent) -> None:
        texts[event.message["tracking_id"]] = event.message["content"][0].get("text", "")

    agent.add_hook(note)
    for text in TALK:
        agent(text)
    console.print(
        f"\n[bold]Selection[/bold]: the user's first messages within {BUDGET} tokens, as explain()"
        " reports them:"
    )
    for outcome in [
        each for each in agent.conversation_manager.explain(agent) if each.role == "user"
    ][:6]:  # type: ignore[attr-defined]
        line = f"  {outcome.outcome:<8} {outcome.reason:<26} {texts[outcome.tracking_id]}"
        console.print(line, markup=False, no_wrap=True, overflow="ellipsis")
    agent(QUESTION)
    blocks = [block.get("text", "") for block in model.requests[-1].messages[-1]["content"]]
    quotes = [
        line
        for text in blocks
        if "<recalled_history>" in text
        for line in text.splitlines()
        if line.startswith("[assi")
    ]
    console.print(f"[bold]Recall[/bold]: quoted for the question {QUESTION}")
    console.print(*(f"  {quote}" for quote in quotes[:1]), markup=False)
