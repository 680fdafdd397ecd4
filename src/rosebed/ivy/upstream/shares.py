"""Cuts one large request into shares for several replicas. Pure arithmetic; `join` order follows from `start`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rosebed.proto.sizes import HEADER_BYTES, SEQUENCE_BYTES, TOKEN_BYTES, message_bytes

MIN_SHARE_TOKENS = 512
"""Fewer tokens than this are not worth a replica of their own: about so many saturate a small model's device."""
MAX_SHARE_TOKENS = 1 << 18
"""More tokens than this go in several messages, so that a huge request flows through a queue it would overfill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """What one message to a replica may hold."""

    sequences: int = 1
    num_bytes: int = 64 << 20

    def smallest(self, other: "MessageLimits") -> "MessageLimits":
        """What both replicas take."""
        return MessageLimits(
            sequences=min(self.sequences, other.sequences), num_bytes=min(self.num_bytes, other.num_bytes)
        )


class Share(NamedTuple):
    """The sequences [start, stop) of a request, for one replica."""

    replica: int
    start: int
    stop: int


def split(num_tokens: Sequence[int], outstanding: Sequence[int], limits: MessageLimits) -> list[Share]:
    """Shares that cover all sequences (`num_tokens` each) once, in order.

    `outstanding` is the tokens each replica still has to compute. Tokens go where they end soonest: shares raise the
    least loaded replicas to one common level.
    """
    total = sum(num_tokens)
    fits = len(num_tokens) <= limits.sequences and message_bytes(total, len(num_tokens)) <= limits.num_bytes
    most = MIN_SHARE_TOKENS if len(outstanding) > 1 else MAX_SHARE_TOKENS
    if total <= most and fits:  # nearly every online request
        return [Share(outstanding.index(min(outstanding)), 0, len(num_tokens))]
    loads = level(total, outstanding)
    replicas = [replica for replica, load in enumerate(loads) if load]
    ends = np.cumsum(num_tokens)
    inner = np.searchsorted(ends, np.cumsum([loads[replica] for replica in replicas])[:-1], side="right").tolist()
    return [
        Share(replica, start, stop)
        for replica, (first, last) in zip(replicas, pairwise([0, *inner, len(num_tokens)]), strict=True)
        for start, stop in pairwise(_cuts(ends, first, last, limits))
    ]


def _cuts(ends: npt.NDArray[np.int64], first: int, last: int, limits: MessageLimits) -> list[int]:
    """Where to cut the sequences [first, last), both included, so that no piece is over a limit if it can be helped."""
    byte_ends = TOKEN_BYTES * ends + SEQUENCE_BYTES * np.arange(1, len(ends) + 1)
    cuts = [first]
    while cuts[-1] < last:
        start = cuts[-1]
        fitting = min(
            _fitting(ends, start, MAX_SHARE_TOKENS), _fitting(byte_ends, start, limits.num_bytes - HEADER_BYTES)
        )
        cuts.append(min(max(fitting, start + 1), start + limits.sequences, last))
    return cuts


def _fitting(ends: npt.NDArray[np.int64], start: int, room: int) -> int:
    """Where the sequences end that, from `start` on, take no more than `room`; `ends` is their running total."""
    before = int(ends[start - 1]) if start else 0
    return int(np.searchsorted(ends, before + room, side="right"))


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
