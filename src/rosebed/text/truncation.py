"""Which tokens to keep when there are too many. Pure arithmetic on lengths and arrays."""

from rosebed.core.types import Int32Array
from rosebed.text.tokenized import Side


def keep(token_ids: Int32Array, num_kept: int, side: Side) -> Int32Array:
    """The first `num_kept` ids, or the last where the left side is cut. All if there are no more than that."""
    if len(token_ids) <= num_kept:
        return token_ids
    return token_ids[:num_kept] if side is Side.RIGHT else token_ids[len(token_ids) - num_kept :]


def share_longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens to keep of two texts so that `room` holds both: the longer gives way until both are equally long.

    The same split as the `longest_first` strategy of the tokenizers library; an odd token goes to the second text.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    if 2 * shorter <= room:
        return (shorter, room - shorter) if first <= second else (room - shorter, shorter)
    half = room // 2
    return (half, room - half) if first <= second else (room - half, half)
