"""Token ids that callers bring: from lists of Python numbers to numpy in one go, and their range."""

import struct
from collections.abc import Sequence

import numpy as np

from rosebed.core.types import Int32Array


def packed_ids(ids: Sequence[int]) -> "memoryview[int] | None":
    """`ids` as 32-bit numbers; None if one is no whole number, or takes more.

    Half the time that numpy takes for a list, and what makes a list of thousands cheap to compare and to hand on.
    """
    try:
        return memoryview(struct.pack(f"={len(ids)}i", *ids)).cast("i")
    except struct.error:
        return None


def int32_ids(ids: Sequence[int]) -> Int32Array | None:
    """int32[len(ids)]; None if one is no whole number, or takes more than 32 bits."""
    packed = ids if isinstance(ids, memoryview) else packed_ids(ids)
    return None if packed is None else np.frombuffer(packed, np.int32)


def all_below(ids: Int32Array, limit: int) -> bool:
    """Whether all of `ids`, at least one, lie in [0, limit)."""
    # NOTE: seen as unsigned, negative numbers are huge, so that one pass finds both ends of the range.
    unsigned = ids.view(np.uint32)
    return bool(unsigned[unsigned.argmax()] < limit)
