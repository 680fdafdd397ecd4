"""Cuts one large request into shares for several replicas. Pure arithmetic; `join` order follows from `start`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

MIN_SHARE_TOKENS = 512
"""Fewer tokens than this are not worth a replica of their own: about so many saturate a small model's device."""


@dataclass(frozen=True, slots=True)
class Share:
    """The sequences [start, stop) of a request, for one replica."""

    replica: int
    start: int
    stop: int


def split(num_tokens: Sequence[int], outstanding: Sequence[int], max_sequences: int) -> list[Share]:
    """Shares that cover all sequences (`num_tokens` each) once, in order.

    `outstanding` is the tokens each replica still has to compute, `max_sequences` what one message may hold. Tokens go
    where they end soonest: shares raise the least loaded replicas to one common level.
    """
    loads = level(sum(num_tokens), outstanding)
    replicas = [replica for replica, load in enumerate(loads) if load]
    ends = np.cumsum(num_tokens)
    inner = np.searchsorted(ends, np.cumsum([loads[replica] for replica in replicas])[:-1], side="right").tolist()
    bounds = [0, *inner, len(num_tokens)]
    return [
        Share(replica, start, min(start + max_sequences, stop))
        for replica, (first, stop) in zip(replicas, pairwise(bounds), strict=True)
        for start in range(first, stop, max_sequences)
    ]


def level(total: int, outstanding: Sequence[int]) -> list[int]:
    """How many of `total` tokens each replica gets; they sum to `total`, and none is between 0 and a minimal share."""
    by_load = sorted(range(len(outstanding)), key=outstanding.__getitem__)
    used = len(by_load)
    while used > 1 and _room(total, [outstanding[r] for r in by_load[:used]]) < MIN_SHARE_TOKENS:
        used -= 1
    height = (total + sum(outstanding[r] for r in by_load[:used])) // used
    loads = [0] * len(outstanding)
    for replica in by_load[:used]:
        loads[replica] = height - outstanding[replica]
    loads[by_load[0]] += total - sum(loads)
    return loads


def _room(total: int, outstanding: Sequence[int]) -> int:
    """Tokens the most loaded replica would get if all came out level; negative if it is above that."""
    return (total + sum(outstanding)) // len(outstanding) - outstanding[-1]
