"""Three roles of the shop's squad: purpose, system prompt, and the rules of the scripted model."""

from __future__ import annotations

from dataclasses import dataclass

from mangaassist.assistant import script
from mangaassist.assistant.classifier import ESCALATION, ORDERS, PRODUCTS
from strands_manga_memory import DialogueSlot

_COMMON = (
    "You work for a manga shop. Answer in the language of the customer, Japanese or English, in a"
    " few sentences. Look everything up with your tools; never invent a title, a number or a date. "
)


@dataclass(frozen=True)
class Role:
    """Role of one agent: name (in lower case the id), purpose, system prompt, and rules."""

    name: str
    purpose: str
    prompt: str
    rules: script.Rules


ROLES = {
    PRODUCTS: Role(
        "Products",
        "Finds manga, tells stock and prices, takes purchases.",
        f"{_COMMON}You know the catalogue. Fill the slots of a purchase with update_slots, and ask"
        " for what is missing.",
        script.products,
    ),
    ORDERS: Role(
        "Orders",
        "Tells where orders are.",
        f"{_COMMON}You know the customer's orders. Hand a customer who complains over to escalation"
        " with hand_over.",
        script.orders,
    ),
    ESCALATION: Role(
        "Escalation",
        "Takes complaints.",
        f"{_COMMON}You take complaints: read what was handed over, open one case with open_case,"
        " and tell its number.",
        script.escalation,
    ),
}

INTENTS = {
    "purchase": [
        DialogueSlot(name="volume", question="Which volume would you like?", entity="volume"),
        DialogueSlot(name="format", question="Paper or digital?", allowed=("paper", "digital")),
    ],
    "browsing": [],
}
"""Slots of a purchase, which the assistant asks for one by one and keeps over restarts."""
