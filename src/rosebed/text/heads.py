"""Ids of texts of any length, at a cost that the limit on tokens bounds and not the length of the text.

Of a text many times longer than the limit only a head is encoded. It ends between two words, where a tokenizer that
takes words one by one makes the same of what lies before, whatever follows (`boundaries.splits_at_blanks`). A head that
gives too few tokens is made longer. What cannot be cut so is encoded whole, up to a length.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rosebed.text.encoders import Encoder

CHARACTERS_PER_TOKEN = 16
"""A first head has so many per token that is wanted: several times what any language needs."""
LEAST_CHARACTERS = 4096
"""Of a first head."""
GROWTH = 8
"""Each head is so many times the one that gave too few tokens."""
MOST_CHARACTERS = 1 << 20
"""Of what is encoded at once: a text that calls for more is not encoded at all."""
GROUP_CHARACTERS = 1 << 18
"""Texts are encoded in groups of about so many characters: an encoding takes some 250 bytes for each."""

_LETTER = (
    "0-9A-Za-zÀ-ÖØ-öø-ƿΑ-ΡΣ-ωА-яѐ-ѓא-תء-غف-ي"
    "अ-हก-ฮ一-鿿가-힣"  # Devanagari, Thai, Chinese, Korean
)
"""Characters that no mark, joiner or normal form connects with a blank beside them."""
_BETWEEN_WORDS = re.compile(rf"(?<=[{_LETTER}]) (?=[{_LETTER}])")


@dataclass(frozen=True, slots=True)
class Ids:
    """The bare ids of a text, or the first of them."""

    ids: list[int]
    is_head: bool = False
    """Whether the text goes on; there are more ids than were wanted then."""
    num_characters: int = 0
    """Of a text that was not encoded, since it is too long."""


def encode_whole(encoder: Encoder, texts: Sequence[str]) -> list[Ids]:
    """All ids of each text."""
    short = [text if len(text) <= MOST_CHARACTERS else "" for text in texts]
    return [
        Ids(ids) if len(text) <= MOST_CHARACTERS else Ids([], num_characters=len(text))
        for text, ids in zip(texts, encoder.encode(short), strict=True)
    ]


def encode_heads(encoder: Encoder, texts: Sequence[str], num_wanted: int) -> list[Ids]:
    """Of each text all ids, or, where it is far longer, more than `num_wanted` of the first ones.

    The tokenizer is one that splits at blanks. UnicodeEncodeError for a lone surrogate anywhere in a text.
    """
    size = first_size(num_wanted)
    found = [Ids([])] * len(texts)
    waiting = list(range(len(texts)))
    while waiting:
        heads = [head(texts[i], min(size, MOST_CHARACTERS)) for i in waiting]
        for i, text, ids in zip(waiting, heads, encode_whole(encoder, heads), strict=True):
            is_head = len(text) < len(texts[i])
            found[i] = Ids(ids.ids, is_head=True) if is_head else ids
        waiting = [i for i in waiting if found[i].is_head and len(found[i].ids) <= num_wanted]
        if size >= MOST_CHARACTERS:
            break
        size *= GROWTH
    for i in waiting:
        found[i] = Ids([], num_characters=len(texts[i]))
    return found


def first_size(num_wanted: int) -> int:
    """Characters of a text's first head."""
    return max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * num_wanted)


def head(text: str, size: int) -> str:
    """About the first `size` characters, up to a place between two words; all where there is none near enough."""
    if len(text) <= size:
        return text
    places = [place.start() for place in _BETWEEN_WORDS.finditer(text, size // 2, size)]
    if places:
        end = places[-1]
    elif place := _BETWEEN_WORDS.search(text, size, MOST_CHARACTERS + 2):  # the head, the blank, what follows it
        end = place.start()
    else:
        return text
    if not text.isascii():
        text[end:].encode()  # the head's own characters meet the encoder
    return text[:end]


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
