"""Which tokens to keep when there are too many. Pure arithmetic on lengths and lists."""

from typing import TypeVar

from rosebed.core.counting import counted
from rosebed.core.errors import ContextLengthExceeded, InvalidInput
from rosebed.core.types import Int32Array
from rosebed.text.tokenized import PairCut, Side, TokenizeOptions

Ids = TypeVar("Ids", list[int], Int32Array)


def fit(
    texts: tuple[Ids, ...], *, limit: int, num_special: int, index: int, options: TokenizeOptions
) -> tuple[Ids, ...]:
    """The bare ids of one text or of a pair, cut so that they and their special tokens number at most `limit`.

    ContextLengthExceeded for `input[index]` if they number more and `options` does not allow cutting, and for the first
    text of a pair, `input[index][0]`, if it alone is over the limit and not to be cut; InvalidInput if not even the
    special tokens fit.
    """
    num_tokens = sum(map(len, texts)) + num_special
    if num_tokens <= limit:
        return texts
    if not options.truncate:
        if len(texts) > 1 and len(texts[0]) + num_special > limit:
            raise _first_too_long(len(texts[0]) + num_special, limit, index)
        raise too_long(f"input[{index}] has {num_tokens} tokens", limit, f"input[{index}]")
    if limit < max(1, num_special):
        lengths = f"{counted(limit, 'token')}: its {counted(num_special, 'special token')} stay"
        raise InvalidInput(f"input[{index}] cannot be cut to {lengths}", param=f"input[{index}]")
    room = limit - num_special
    if len(texts) == 1:
        return (keep(texts[0], room, options.side),)
    first, second = share(len(texts[0]), len(texts[1]), room, options.pair_cut)
    if second < 0:
        raise _first_too_long(first + num_special, limit, index)
    return keep(texts[0], first, options.side), keep(texts[1], second, options.side)


def keep(token_ids: Ids, num_kept: int, side: Side) -> Ids:
    """The first `num_kept` ids, or the last where the left side is cut. All if there are no more than that."""
    if len(token_ids) <= num_kept:
        return token_ids
    return token_ids[:num_kept] if side is Side.RIGHT else token_ids[len(token_ids) - num_kept :]


def share(first: int, second: int, room: int, cut: PairCut) -> tuple[int, int]:
    """How many tokens to keep of two texts of these lengths, so that `room` holds both.

    Under `PairCut.SECOND` the first keeps all its tokens, even where that leaves less than none for the second.
    """
    if first + second <= room:
        return first, second
    return (first, room - first) if cut is PairCut.SECOND else _share_longest_first(first, second, room)


def _share_longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The split that the tokenizers library makes under the same name, odd token included."""
    shorter = min(first, second)
    if 2 * shorter > room:
        shorter = room // 2
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def _first_too_long(num_tokens: int, limit: int, index: int) -> ContextLengthExceeded:
    name = part_name(index, 0, 2)
    return too_long(f"{name} alone takes {num_tokens} tokens", limit, name)


def part_name(index: int, place: int, num_texts: int) -> str:
    """What errors call the text at `place` of an input of so many."""
    return f"input[{index}]" if num_texts == 1 else f"input[{index}][{place}]"


def too_long(what: str, limit: int, name: str) -> ContextLengthExceeded:
    """The refusal of the input called `name`; `what` says what is too long."""
    return ContextLengthExceeded(f"{what}, over the limit of {limit}", param=name)
