"""Which graphs are worth adding to a ladder, by the sizes that steps have had. Knows neither CUDA nor files.

Sizes are multiples of 64, as kernels cut their products: padding within one costs nothing. Below 1024 the online lane's
ladder has them all, so only larger keys, and the bulk lane's, are refined.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rosebed.rose.cuda.keys import FINE_STEP, MAX_GRAPHS, SMALL_RUNGS, GraphKey

LEAST_STEPS = 100
"""Rarer sizes may never come again."""
LEAST_SHARE = 0.001
"""Of all tokens that steps compute, what a graph must save to be worth its memory and its moment."""
LEAST_FREE_BYTES = 2 << 30
"""Left on the device, so that the largest eager step finds its memory."""


def fine_tokens(num_tokens: int) -> int:
    """The size that a step of so many tokens counts as."""
    for rung in SMALL_RUNGS:
        if num_tokens <= rung:
            return rung
    return -(-num_tokens // FINE_STEP) * FINE_STEP


def refinements(
    counts: Mapping[GraphKey, int], rung_of: Callable[[GraphKey], int | None], captured: Collection[GraphKey]
) -> list[GraphKey]:
    """The keys to add, those that save most tokens first.

    `counts` has steps by the key of their own size, `rung_of` is the tokens of the ladder's key that such steps run in;
    None where there is none, and nothing to refine.
    """
    rungs = {key: rung for key in counts if (rung := rung_of(key)) is not None}
    total = sum(counts[key] * rung for key, rung in rungs.items())
    saved = {key: counts[key] * (rung - key.num_tokens) for key, rung in rungs.items()}
    worth = (
        key
        for key, tokens in saved.items()
        if counts[key] >= LEAST_STEPS and tokens >= LEAST_SHARE * total and key not in captured and tokens > 0
    )
    return sorted(worth, key=lambda key: -saved[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What there is for another graph."""

    num_graphs: int
    graph_bytes: int
    max_bytes: int | None
    """`--graph-memory-mb`; None sets no bound."""
    free_bytes: int
    """Of the device."""

    @property
    def is_left(self) -> bool:
        """Whether one more may be captured."""
        return (
            self.num_graphs < MAX_GRAPHS
            and (self.max_bytes is None or self.graph_bytes < self.max_bytes)
            and self.free_bytes >= LEAST_FREE_BYTES
        )
