"""What is asked of a target: one request, and the seeded contents of many. Knows no wire."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rosebed.bench.words import WORDS
from rosebed.core.types import Int32Array, Lane

LOWEST_ID = 1000
"""Ids below are left out where the vocabulary is large enough: special tokens, bytes and the like live there."""
DEFAULT_VOCABULARY = 20_000
"""Ids lie below this where the target does not say how many it has; every common model has more."""


@dataclass(frozen=True, slots=True)
class RequestShape:
    """A request without its contents."""

    lengths: tuple[int, ...]
    """Tokens of each input."""
    lane: Lane = Lane.ONLINE

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True, slots=True, eq=False)
class BenchRequest:
    """One request: all its inputs are token ids (int32[n] each), or all are texts."""

    shape: RequestShape
    token_ids: tuple[Int32Array, ...] = ()
    texts: tuple[str, ...] = ()


class RequestMaker:
    """Makes requests that a seed decides: the same for every target."""

    def __init__(self, *, seed: Sequence[int], vocab_size: int | None, words_less: int = 0) -> None:
        """`words_less` is how many words fewer than tokens a text has: the special tokens that a server adds."""
        self._random = np.random.default_rng(seed)
        self._high = vocab_size or DEFAULT_VOCABULARY
        self._low = LOWEST_ID if self._high > 2 * LOWEST_ID else 0
        self._words_less = words_less

    def of_ids(self, shape: RequestShape) -> BenchRequest:
        """Random token ids, used as they are: no special tokens among them."""
        ids = self._random.integers(self._low, self._high, shape.num_tokens, dtype=np.int32)
        return BenchRequest(shape, token_ids=tuple(np.split(ids, np.cumsum(shape.lengths)[:-1])))

    def of_text(self, shape: RequestShape) -> BenchRequest:
        """Random words, one token each."""
        return BenchRequest(shape, texts=tuple(self._text(length) for length in shape.lengths))

    def make(self, shapes: Sequence[RequestShape], *, as_text: bool) -> list[BenchRequest]:
        """One request for each of `shapes`."""
        return [self.of_text(shape) if as_text else self.of_ids(shape) for shape in shapes]

    def _text(self, num_tokens: int) -> str:
        picked = self._random.integers(0, len(WORDS), max(1, num_tokens - self._words_less))
        return " ".join(WORDS[index] for index in picked.tolist())
