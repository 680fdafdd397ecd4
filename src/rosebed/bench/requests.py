"""What is asked of a target: one request, and the seeded contents of many. Knows no wire."""

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How many tokens a target makes of a text of `WORDS`."""

    special: float = 0.0
    """Tokens of every text, whatever its words."""
    per_word: float = 1.0
    """1 in every vocabulary that knows the words."""

    @classmethod
    def of_counts(cls, counts: Mapping[int, int]) -> "TokenCount":
        """From two observations: number of words → tokens."""
        (few, few_tokens), (many, many_tokens) = sorted(counts.items())
        per_word = (many_tokens - few_tokens) / (many - few)
        return cls(few_tokens - per_word * few, per_word) if per_word > 0 else cls()

    def words_of(self, num_tokens: int) -> int:
        """Words of a text of `num_tokens`, at least one."""
        return max(1, round((num_tokens - self.special) / self.per_word))


class RequestMaker:
    """Makes requests that a seed decides: the same for every target."""

    def __init__(self, *, seed: Sequence[int], vocab_size: int | None, count: TokenCount = TokenCount()) -> None:
        self._random = np.random.default_rng(seed)
        self._high = vocab_size or DEFAULT_VOCABULARY
        self._low = LOWEST_ID if self._high > 2 * LOWEST_ID else 0
        self._count = count

    def of_ids(self, shape: RequestShape) -> BenchRequest:
        """Random token ids, used as they are: no special tokens among them."""
        ids = self._random.integers(self._low, self._high, shape.num_tokens, dtype=np.int32)
        return BenchRequest(shape, token_ids=tuple(np.split(ids, np.cumsum(shape.lengths)[:-1])))

    def of_text(self, shape: RequestShape) -> BenchRequest:
        """Random words, as many as give the tokens that are asked for."""
        return BenchRequest(shape, texts=tuple(self._text(length) for length in shape.lengths))

    def make(self, shapes: Sequence[RequestShape], *, as_text: bool) -> list[BenchRequest]:
        """One request for each of `shapes`."""
        return [self.of_text(shape) if as_text else self.of_ids(shape) for shape in shapes]

    def _text(self, num_tokens: int) -> str:
        picked = self._random.integers(0, len(WORDS), self._count.words_of(num_tokens))
        return " ".join(WORDS[index] for index in picked.tolist())
