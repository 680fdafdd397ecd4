"""Ids of texts of any length, at a cost that the limit on tokens bounds and not the length of the text.

Of a text many times longer than the limit only the head is encoded: what lies far behind the last token that may be
kept cannot change those before it. A head that gives too few tokens is made longer, up to the whole text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rosebed.text.encoders import Encoder

MARGIN = 256
"""Last tokens of a head that are left out, as the rest of the text may change them. Well over a word of WordPiece (100
characters) or a merge of BPE, so that it also holds where a text has no blank to end its head at."""
CHARACTERS_PER_TOKEN = 16
"""A first head has so many per token that is wanted: several times what any language needs."""
GROWTH = 8
"""Each head is so many times the one that gave too few tokens."""
GROUP_CHARACTERS = 1 << 18
"""Texts are encoded in groups of about so many characters: an encoding takes some 250 bytes for each."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The bare ids of a text, or the first of them."""

    ids: list[int]
    is_head: bool = False
    """Whether the text goes on; there are more ids than were wanted then."""


def encode_whole(encoder: Encoder, texts: Sequence[str]) -> list[Ids]:
    """All ids of each text."""
    return [Ids(ids) for ids in encoder.encode(texts)]


def encode_heads(encoder: Encoder, texts: Sequence[str], num_wanted: int) -> list[Ids]:
    """Of each text all ids, or, where it is far longer, more than `num_wanted` of the first ones."""
    size = first_size(num_wanted)
    found = [Ids([])] * len(texts)
    waiting = list(range(len(texts)))
    while waiting:
        heads = [head(texts[i], size) for i in waiting]
        for i, text, ids in zip(waiting, heads, encoder.encode(heads), strict=True):
            is_head = len(text) < len(texts[i])
            found[i] = Ids(ids[:-MARGIN], is_head=True) if is_head else Ids(ids)
        waiting = [i for i in waiting if found[i].is_head and len(found[i].ids) <= num_wanted]
        size *= GROWTH
    return found


def first_size(num_wanted: int) -> int:
    """Characters of a text's first head."""
    return CHARACTERS_PER_TOKEN * (max(0, num_wanted) + MARGIN)


def head(text: str, size: int) -> str:
    """About the first `size` characters; up to a blank if there is one near, since tokenizers split there."""
    if len(text) <= size:
        return text
    blank = text.rfind(" ", size // 2, size)
    return text[: blank if blank > 0 else size]


def groups(lengths: Sequence[int]) -> Iterator[slice]:
    """Slices of neighbours whose lengths sum to about `GROUP_CHARACTERS`, one at least in each."""
    start = total = 0
    for i, length in enumerate(lengths):
        if total and total + length > GROUP_CHARACTERS:
            yield slice(start, i)
            start, total = i, 0
        total += length
    if start < len(lengths):
        yield slice(start, len(lengths))
