"""Classifier that selects an agent by English and Japanese words, without a network."""

from __future__ import annotations

import re

from agent_squad.classifiers import Classifier, ClassifierResult
from agent_squad.types import ConversationMessage

PRODUCTS, ORDERS, ESCALATION = "products", "orders", "escalation"

_WORDS = (
    (
        ORDERS,
        r"\bmy orders?\b|\bORD-\d|deliver|parcel|complain|unacceptable|refund|human"
        r"|注文(?!したい)|届|配送|荷物|苦情|返金|ひどい|担当者",
    ),
    (
        PRODUCTS,
        r"stock|about me|my favou?rite|my (?:budget|format|language|name)\b"
        r"|manga|series|volumes?\b|read\b|genre|recommend|buy|take"
        r" it|cheap|edition|horror|\bpaper\b|\bdigital\b|catalogue"
        r"|在庫|漫画|巻|読み|ジャンル|おすすめ|買|欲し|作品|私の好み|私の名前|好きな|予算|安い|安く|ホラー|電子版",
    ),
)


class WordClassifier(Classifier):
    """Classifier by words, which falls back on the last agent or its handover."""

    async def process_request(
        self, input_text: str, chat_history: list[ConversationMessage]
    ) -> ClassifierResult:
        """Return the agent for a message."""
        found = next(
            (id_ for id_, words in _WORDS if re.search(words, input_text, re.IGNORECASE)), None
        )
        if found is None and chat_history:
            answer = str(
                chat_history[-1].content[0]["text"]
            )  # "[orders] My colleague from escalation takes over."
            speaker = re.match(r"\[([\w-]+)\]", answer)
            found = ESCALATION if _PASSED_ON.search(answer) else speaker[1] if speaker else None
        selected = self.agents.get(found or PRODUCTS, self.agents[PRODUCTS])
        return ClassifierResult(selected_agent=selected, confidence=1.0)


_PASSED_ON = re.compile(r"^\[orders\].*escalation", re.DOTALL)
