"""The texts that models are verified with: many subjects and languages, odd strings, up to too long."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from rosebed.bench.words import WORDS

MAX_COMPUTED_TOKENS = 1024
"""Of texts longer than this only the token ids are compared: the reference runs on a CPU."""
BEYOND = 50
"""Words by which the longest text is over the model's limit."""


def verification_texts(max_length: int) -> list[str]:
    """The texts that ship, and one that a model of `max_length` tokens has to cut."""
    shipped: list[str] = json.loads((Path(__file__).parent / "texts.json").read_text(encoding="utf-8"))
    count = max_length + BEYOND
    return [*shipped, " ".join(WORDS[index % len(WORDS)] for index in range(count))]


def digest(texts: Sequence[str]) -> str:
    """Tells these texts from others."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
