"""What a tokenizer's post-processor adds around a text, learnt once, so that truncation can leave it alone.

Every post-processor of the `tokenizers` format puts fixed tokens before, between and after its texts. Knowing them
lets a text be encoded bare, cut, and dressed, without touching the shared tokenizer's own truncation state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Encoding, Tokenizer

_PROBE = "a"


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special tokens around one text, or around and between two. Ids are lists here: that is how they come."""

    gaps: tuple[list[int], ...]
    """Special token ids before the first text, between texts, after the last: num_texts + 1 lists."""
    gap_types: tuple[list[int], ...]
    """The segment of each of those tokens."""
    text_types: tuple[int, ...]
    """The segment of each text's own tokens."""

    @classmethod
    def bare(cls, num_texts: int) -> "SpecialTokenTemplate":
        """The template that adds nothing."""
        empty: tuple[list[int], ...] = ([],) * (num_texts + 1)
        return cls(gaps=empty, gap_types=empty, text_types=(0,) * num_texts)

    @classmethod
    def probe(cls, tokenizer: Tokenizer, num_texts: int) -> "SpecialTokenTemplate":
        """Learn what `tokenizer` adds around one text or two."""
        return _split(tokenizer.encode(_PROBE, _PROBE if num_texts == 2 else None), num_texts)

    @cached_property
    def num_tokens(self) -> int:
        """Special tokens in all."""
        return sum(map(len, self.gaps))

    def token_ids(self, texts: Sequence[list[int]]) -> list[int]:
        """The texts' bare ids with the special ones around them."""
        return _interleave(self.gaps, texts)

    def token_type_ids(self, texts: Sequence[list[int]]) -> list[int] | None:
        """Segment of each id that `token_ids` returns; None if all are zero."""
        if not self.has_types:
            return None
        types = [[kind] * len(ids) for ids, kind in zip(texts, self.text_types, strict=True)]
        return _interleave(self.gap_types, types)

    def strip(self, token_ids: list[int]) -> list[int] | None:
        """The bare ids of one dressed text; None if `token_ids` does not begin and end as a dressed text does."""
        before, after = self.gaps
        start, stop = len(before), len(token_ids) - len(after)
        if stop < start or token_ids[:start] != before or token_ids[stop:] != after:
            return None
        return token_ids[start:stop]

    @cached_property
    def has_types(self) -> bool:
        """Whether any token is of another segment than the first."""
        return any(self.text_types) or any(map(any, self.gap_types))


def _interleave(gaps: Sequence[list[int]], texts: Sequence[list[int]]) -> list[int]:
    joined = gaps[0].copy()
    for text, gap in zip(texts, gaps[1:], strict=True):
        joined += text
        joined += gap
    return joined


def _split(encoding: Encoding, num_texts: int) -> SpecialTokenTemplate:
    owners, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
    starts = [owners.index(text) for text in range(num_texts)]
    stops = [start + owners.count(text) for text, start in enumerate(starts)]
    gaps = list(zip([0, *stops], [*starts, len(ids)], strict=True))
    return SpecialTokenTemplate(
        gaps=tuple(ids[start:stop] for start, stop in gaps),
        gap_types=tuple(types[start:stop] for start, stop in gaps),
        text_types=tuple(types[start] for start in starts),
    )
