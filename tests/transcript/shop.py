"""Tools of the shop: JSON results, and an order system that is down at first."""

import json
from collections.abc import Callable
from typing import Any

from strands import tool

CATALOGUE = [
    {"asin": "B07X1234", "title": "Uzumaki", "author": "Junji Ito", "genre": "horror",
        "volumes": 1, "price": 2800},
    {"asin": "B07X5678", "title": "Tomie", "author": "Junji Ito", "genre": "horror", "volumes": 1,
        "price": 3100},
    {"asin": "B07X9012", "title": "Gyo", "author": "Junji Ito", "genre": "horror", "volumes": 1,
        "price": 2600},
    {"asin": "B0762001", "title": "Natsume's Book of Friends", "genre": "shojo", "volumes": 30,
        "price": 900},
    {"asin": "B09P0001", "title": "PTSD Radio", "author": "Masaaki Nakayama", "genre": "horror",
        "price": 2400},
    {"asin": "B0990077", "title": "The Summer Hikaru Died", "genre": "mystery", "volumes": 5,
        "price": 1300},
    {"asin": "B0551111", "title": "Oishinbo", "genre": "cooking", "volumes": 7, "price": 1200,
        "note": "soups in volume 1"},
]  # fmt: skip
MATCHES = {
    "uzumaki": [0],
    "うずまき": [0],
    "junji ito": [0, 1, 2],
    "伊藤潤二": [0, 1, 2],
    "natsume": [3],
    "夏目友人帳": [3],
    "ptsd": [4],
    "mystery": [5],
    "ミステリー": [5],
    "soup": [6],
    "スープ": [6],
}
STOCK = {"B07X1234": 7, "B0762002": 3, "B0762003": 0, "B09P0001": 12}
FAILURES = 2
"""Calls of ``order_status`` that fail before the order system answers."""


def make_tools() -> list[Callable[..., Any]]:
    """Return fresh tools of the shop."""
    orders = iter(range(100))

    @tool
    def search_catalogue(query: str) -> str:
        """Search the catalogue.

        Args:
            query: Title, author or genre.
        """
        hits = next(
            (indexes for key, indexes in MATCHES.items() if key in query.lower()),
            range(len(CATALOGUE)),
        )
        items = [
            {**CATALOGUE[index], "description": f"An edition of {300 + index} pages. " * 12}
            for index in hits
        ]
        return json.dumps(
            {"query": query, "total": len(items), "items": items}, indent=2, ensure_ascii=False
        )

    @tool
    def check_stock(asin: str) -> dict[str, Any]:
        """Return the copies in stock.

        Args:
            asin: The edition.
        """
        return {
            "status": "success",
            "content": [{"json": {"asin": asin, "copies": STOCK.get(asin, 0)}}],
        }

    @tool
    def order_status(order_id: str) -> str:
        """Return the state of an order.

        Args:
            order_id: Such as ORD-12345.
        """
        if next(orders) < FAILURES:
            raise ConnectionError("order system: connection refused by 10.0.0.7:5432")
        return json.dumps(
            {"order_id": order_id, "status": "shipped", "carrier": "Yamato", "eta": "tomorrow"}
        )

    @tool
    def shipping_rates(country: str) -> str:
        """Return the shipping rates.

        Args:
            country: Two letters.
        """
        return (
            "| carrier | yen |\n|---|---|\n| Yamato | 350 |\n| Japan Post | 380 |\nRates for"
            f" {country}."
        )

    @tool
    def add_to_wish_list(asin: str) -> str:
        """Put an edition on the user's wish list.

        Args:
            asin: The edition.
        """
        return json.dumps({"ok": True, "wish_list": [{"asin": asin, "copies": 1}]})

    return [search_catalogue, check_stock, order_status, shipping_rates, add_to_wish_list]
