"""Which sequences of a batch go through the model together, and how their attention is laid out. Pure numpy.

Products take the tokens end to end; only attention wants rows of one length. So padding costs little, and a call much,
since it reads all weights.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rosebed.core.types import Int32Array

SHORT = 64
"""Tokens up to which a sequence may share rows with any shorter one; longer ones with those of half their length."""
MAX_SLOTS_PER_TOKEN = 2
FREE_SLOTS = 256
"""Rows of a group hold no more places than twice its tokens and so many more."""
LENGTH_STEP = 16
"""Rows of several sequences are as long as a multiple of this: kernels are made for each length, and kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Sequences that share a call, in the batch's order, their tokens end to end."""

    members: Int32Array
    """int32[num_rows], which of the batch."""
    slots: Int32Array
    """int32[num_rows, length]: which of the group's tokens lies in each place of the rows; any for what pads."""
    padding: Any
    """float32[num_rows, length]: 0 for tokens, minus infinity for what pads."""
    places: Int32Array
    """int32[num_tokens]: where each token lies in the rows, end to end."""


def near_lengths(lengths: Int32Array) -> list[Group]:
    """Every sequence of a batch, int32[num_sequences] tokens each, in as few groups as the limits allow."""
    if len(lengths) == 1:
        return [_laid_out(np.zeros(1, np.int32), lengths)]
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    groups: list[Group] = []
    first, longest, tokens = 0, int(lengths[order[0]]), 0
    for place, length in enumerate(lengths[order].tolist()):
        slots = (place - first + 1) * longest
        is_near = longest <= max(SHORT, 2 * length)
        if not is_near or slots > MAX_SLOTS_PER_TOKEN * (tokens + length) + FREE_SLOTS:
            groups.append(_laid_out(np.sort(order[first:place]), lengths))
            first, longest, tokens = place, length, 0
        tokens += length
    groups.append(_laid_out(np.sort(order[first:]), lengths))
    return groups


def _laid_out(members: Int32Array, lengths: Int32Array) -> Group:
    own = lengths[members]
    longest = int(own.max())
    width = longest if len(own) == 1 else -(-longest // LENGTH_STEP) * LENGTH_STEP
    columns = np.arange(width, dtype=np.int32)
    is_token = columns < own[:, None]
    starts = np.cumsum(own, dtype=np.int32) - own
    return Group(
        members=members,
        slots=np.where(is_token, starts[:, None] + columns, starts[:, None]).astype(np.int32, copy=False),
        padding=np.where(is_token, np.float32(0), np.float32(-np.inf)),
        places=np.flatnonzero(is_token).astype(np.int32),
    )
