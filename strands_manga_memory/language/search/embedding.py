"""Embeddings: vectors of texts, made by whatever the user brings, and how alike two of them are. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""From texts to vectors of one length, for similarity by meaning instead of by words."""


def unit(vector: Sequence[float]) -> list[float]:
    """Return a vector of length 1 in the same direction; one of zeros stays as it is."""
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else list(vector)


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the product of two vectors; of two of length 1 it is their similarity, -1 to 1.

    Raises:
        ValueError: They are not of one length.
    """
    if len(one) != len(other):
        raise ValueError(f"vectors must be of one length, got {len(one)} and {len(other)}")
    return float(sum(map(operator.mul, one, other)))


def embedded(embed: Embed, texts: Sequence[str]) -> list[list[float]]:
    """Return a vector of length 1 for each text.

    Raises:
        ValueError: ``embed`` did not return one vector for each text.
    """
    vectors = [unit([float(value) for value in vector]) for vector in embed(texts)] if texts else []
    if len(vectors) != len(texts):
        raise ValueError(f"embed must return one vector for each text, got {len(vectors)} for {len(texts)}")
    return vectors
