"""tokens: difference between our token counts and tiktoken's, and cost of counting and scoring.

The texts are our own shop conversations, English and Japanese. Times are processor times of this
thread.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tiktoken
from strands.types.content import Message

from strands_manga_memory.conversation import EstimateCounter, RuleScorer, TiktokenCounter
from strands_manga_memory.conversation.importance import FeatureCache
from strands_manga_memory.conversation.token_counter import count_content
from strands_manga_memory.messages.texts import estimate_tokens
from tests.benchmarks import text

BUDGETS = {
    "text_conversations_off_percent": "<= 1",
    "tool_conversations_off_percent": "<= 1",
    "estimate_english_over_percent": "<= 34",
    "estimate_japanese_over_percent": "<= 34",
    "estimate_english_under_percent": "<= 0",
    "estimate_japanese_under_percent": "<= 0",
    "count_again_to_count": "<= 1",
    "score_to_estimate": (
        "<= 2.5"
    ),  # with the rules of standing instructions, which read every sentence's beginning
    "score_of_a_long_text_to_estimate": "<= 1.5",
}

ENGLISH = (
    "Hi! I'm looking for a long mystery series, something like the one about the clockmaker.",
    (
        'I recommend "The Clockmaker\'s Apprentice", complete in 14 volumes. Volume 1 is 660 yen'
        " and in stock."
    ),
    "I prefer hardcover editions, and please no spoilers beyond volume 3.",
    "Understood. The hardcover box of volumes 1 to 5 is 6,800 yen; it ships within two days.",
    "Great. Could you also check order ORD-55120? It should have arrived on Tuesday.",
    (
        "ORD-55120 left our depot in Nagoya on Monday at 18:40 and will be delivered tomorrow"
        " between 9 and 12."
    ),
    "No, I meant the other one, ORD-55210, with the two art books.",
    (
        "Sorry about that. ORD-55210 is waiting for one art book that is being reprinted until the"
        " end of the month."
    ),
    "Can you cancel just that book and refund it to my card?",
    (
        "Done: 3,520 yen will be back on your card ending in 0917 within five working days."
        " Anything else?"
    ),
    "That's all, thanks!",
    "You're welcome. Enjoy the clockmaker!",
)
JAPANESE = (
    "こんにちは。時計職人が出てくる長編のミステリー漫画を探しています。",
    "「時計職人の弟子」全14巻がおすすめです。第1巻は660円で、在庫がございます。",
    "できれば愛蔵版のほうがいいです。3巻より先のネタバレはしないでください。",
    "承知いたしました。1巻から5巻までの愛蔵版セットは6,800円で、二日以内に発送いたします。",
    "ありがとうございます。注文番号ORD-55120も確認してもらえますか。火曜日に届くはずでした。",
    "ORD-55120は月曜日の18時40分に名古屋の倉庫を出ました。明日の午前中にお届けの予定です。",
    "いや、そちらではなくて画集が二冊入っているORD-55210のほうです。",
    "失礼いたしました。ORD-55210は画集のうち一冊が重版待ちで、月末ごろの入荷を予定しております。",
    "その一冊だけキャンセルして、カードに返金していただけますか。",
    (
        "手続きが完了しました。3,520円が五営業日以内に末尾0917のカードへ返金されます。"
        "ほかにご用件はございますか。"
    ),
    "以上です。助かりました。",
    "またのご利用をお待ちしております。",
)

LONG = (
    "Please tell me about the delivery of the order that I placed last week, with three volumes of"
    " that series. " * 4,
    "昨日注文した漫画の配送状況について教えていただけますか。三巻セットで塔と猫の話だったと思います。"
    * 5,
    "I like " * 500,
    "ok thanks great " * 7,
)
"""Long texts. Some would take an inefficient rule very long."""


def _conversation(texts: Sequence[str]) -> list[Message]:
    return [
        {"role": "user" if at % 2 == 0 else "assistant", "content": [{"text": said}]}
        for at, said in enumerate(texts)
    ]


def _with_tools(texts: Sequence[str]) -> list[Message]:
    messages: list[Message] = []
    for at, message in enumerate(_conversation(texts)):
        if message["role"] == "assistant":
            use = {
                "toolUseId": f"t{at}",
                "name": "catalogue_search",
                "input": {"query": f"volume {at}", "limit": at},
            }
            found = [
                {"text": texts[at - 1]},
                {"json": {"title": f"volume {at}", "stock": at, "price": 660.0}},
            ]
            messages.append({"role": "assistant", "content": [{"toolUse": use}]})  # type: ignore[list-item]
            result = {"toolUseId": f"t{at}", "status": "success", "content": found}
            messages.append({"role": "user", "content": [{"toolResult": result}]})  # type: ignore[list-item]
        messages.append(message)
    return messages


def _texts_of(value: Any) -> list[str]:
    """Return the strings that a provider tokenizes: texts, tool names, inputs, results."""
    if "text" in value:
        return [value["text"]]
    if "json" in value:
        return [json.dumps(value["json"])]
    if "toolUse" in value:
        return [value["toolUse"]["name"], json.dumps(value["toolUse"]["input"])]
    return [
        found
        for item in value.get("content") or value["toolResult"]["content"]
        for found in _texts_of(item)
    ]


def _percent(counted: int, of: int) -> float:
    return 100 * (counted - of) / of


def _seconds(call: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Return the processor time of a call."""
    start = time.thread_time()
    for item in items:
        call(item)
    return (time.thread_time() - start) / len(items)


def run() -> dict[str, float]:
    """Compare our counts with tiktoken's, and time them."""
    exact, estimate = TiktokenCounter(), EstimateCounter()
    encoding: tiktoken.Encoding = exact.encoding

    def own(messages: list[Message]) -> int:
        return sum(
            len(encoding.encode_ordinary(found))
            for message in messages
            for found in _texts_of(message)
        )

    def counted(messages: list[Message]) -> int:
        return sum(map(exact.count, messages))

    plain = _conversation(ENGLISH) + _conversation(JAPANESE)
    tools = _with_tools(ENGLISH) + _with_tools(JAPANESE)
    over = {
        language: _percent(
            sum(map(estimate.count, _conversation(texts))), own(_conversation(texts))
        )
        for language, texts in (("english", ENGLISH), ("japanese", JAPANESE))
    }
    return {
        "text_conversations_off_percent": abs(_percent(counted(plain), own(plain))),
        "tool_conversations_off_percent": abs(_percent(counted(tools), own(tools))),
        **{f"estimate_{language}_over_percent": percent for language, percent in over.items()},
        **{
            f"estimate_{language}_under_percent": max(0.0, -percent)
            for language, percent in over.items()
        },
        **_ratios(exact),
    }


def _ratios(exact: TiktokenCounter, rounds: int = 40) -> dict[str, float]:
    """Return processor times relative to counting.

    Each round measures all of them, so that load affects all alike.
    """
    prose: list[Message] = [
        {"role": "user", "content": [{"text": text(400)}], "tracking_id": str(at)}
        for at in range(50)
    ]
    mixed, long = [*prose, *_conversation(ENGLISH), *_conversation(JAPANESE)], _conversation(LONG)
    score, again = RuleScorer().score, FeatureCache(exact, RuleScorer()).tokens
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        count = _seconds(exact.count, prose)
        estimated = _seconds(lambda message: count_content(message, estimate_tokens), prose)
        found["count_again_to_count"].append(_seconds(again, prose) / count)
        found["score_to_estimate"].append(_seconds(score, mixed) / estimated)
        found["score_of_a_long_text_to_estimate"].append(_seconds(score, long) / estimated)
    return {name: statistics.median(values) for name, values in found.items()}
