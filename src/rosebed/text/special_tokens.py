"""What a tokenizer's post-processor adds around a text, learnt once, so that truncation can leave it alone.

Every post-processor of the `tokenizers` format puts fixed tokens before, between and after its texts. Knowing them
lets a text be encoded bare, cut, and dressed, without touching the shared tokenizer's own truncation state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from tokenizers import Encoding, Tokenizer

from rosebed.core.types import Int32Array

_PROBE = "a"


@dataclass(frozen=True, eq=False)
class SpecialTokenTemplate:
    """The special tokens around one text, or around and between two."""

    gaps: tuple[Int32Array, ...]
    """Special token ids before the first text, between texts, after the last: num_texts + 1 arrays int32[k]."""
    gap_types: tuple[Int32Array, ...]
    """The segment of each of those tokens."""
    text_types: tuple[int, ...]
    """The segment of each text's own tokens."""

    @classmethod
    def bare(cls, num_texts: int) -> "SpecialTokenTemplate":
        """The template that adds nothing."""
        empty = (np.zeros(0, np.int32),) * (num_texts + 1)
        return cls(gaps=empty, gap_types=empty, text_types=(0,) * num_texts)

    @classmethod
    def probe(cls, tokenizer: Tokenizer, num_texts: int) -> "SpecialTokenTemplate":
        """Learn what `tokenizer` adds around one text or two."""
        return _split(tokenizer.encode(_PROBE, _PROBE if num_texts == 2 else None), num_texts)

    @cached_property
    def num_tokens(self) -> int:
        """Special tokens in all."""
        return sum(map(len, self.gaps))

    def token_ids(self, texts: Sequence[Int32Array]) -> Int32Array:
        """int32[num_tokens + tokens of the texts]: the texts' bare ids with the special ones around them."""
        return _interleave(self.gaps, texts)

    def token_type_ids(self, texts: Sequence[Int32Array]) -> Int32Array | None:
        """Segment of each id that `token_ids` returns; None if all are zero."""
        if not self._has_types:
            return None
        types = [np.full(len(ids), kind, np.int32) for ids, kind in zip(texts, self.text_types, strict=True)]
        return _interleave(self.gap_types, types)

    def strip(self, token_ids: Int32Array) -> Int32Array | None:
        """The bare ids of one dressed text; None if `token_ids` does not begin and end as a dressed text does."""
        before, after = self.gaps
        stop = len(token_ids) - len(after)
        if stop < len(before) or not (
            np.array_equal(token_ids[: len(before)], before) and np.array_equal(token_ids[stop:], after)
        ):
            return None
        return token_ids[len(before) : stop]

    @cached_property
    def _has_types(self) -> bool:
        return any(self.text_types) or any(bool(types.any()) for types in self.gap_types)


def _interleave(gaps: Sequence[Int32Array], texts: Sequence[Int32Array]) -> Int32Array:
    return np.concatenate([gaps[0], *chain.from_iterable(zip(texts, gaps[1:], strict=True))])


def _split(encoding: Encoding, num_texts: int) -> SpecialTokenTemplate:
    owners = np.array([-1 if owner is None else owner for owner in encoding.sequence_ids])
    ids, types = np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32)
    starts = [int(np.argmax(owners == text)) for text in range(num_texts)]
    stops = [start + int(np.sum(owners == text)) for text, start in enumerate(starts)]
    gaps = list(zip([0, *stops], [*starts, len(ids)], strict=True))
    return SpecialTokenTemplate(
        gaps=tuple(ids[start:stop] for start, stop in gaps),
        gap_types=tuple(types[start:stop] for start, stop in gaps),
        text_types=tuple(int(types[start]) for start in starts),
    )
