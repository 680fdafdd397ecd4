"""Which CUDA graphs exist: a ladder of token counts, and the smallest rung that holds a batch. Knows no tensors."""

from bisect import bisect_left
from dataclasses import dataclass

SMALL_RUNGS = (16, 32)
"""Below the published ladder: short queries are common, and the products for 16 tokens take less than for 64."""
FINE_STEP, FINE_MOST = 64, 1024
COARSE_STEP = 256
"""The published buckets: multiples of 64, then of 256."""

ROWS_LEAST = 64


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What a captured graph is fixed to. It serves every batch that is no larger on any axis."""

    num_tokens: int
    attention: str
    """Name of the attention backend."""

    @property
    def num_rows(self) -> int:
        """Dense vectors it can return: one for every four tokens, which even three-token sequences rarely exceed."""
        return max(ROWS_LEAST, self.num_tokens // 4)


def ladder(max_tokens: int) -> tuple[int, ...]:
    """Token counts to capture, ascending; the last one is the first rung that holds `max_tokens`."""
    rungs = [*SMALL_RUNGS, *range(FINE_STEP, FINE_MOST + 1, FINE_STEP)]
    while rungs[-1] < max_tokens:
        rungs.append(rungs[-1] + COARSE_STEP)
    return tuple(rungs[: bisect_left(rungs, max_tokens) + 1])


def tokens_for_rows(num_rows: int) -> int:
    """The least `num_tokens` of a key that returns so many rows."""
    return 4 * num_rows if num_rows > ROWS_LEAST else 0


def smallest_key(rungs: tuple[int, ...], num_tokens: int, attention: str) -> GraphKey | None:
    """The smallest key that holds so many tokens; None if the ladder does not reach there."""
    place = bisect_left(rungs, num_tokens)
    return GraphKey(rungs[place], attention) if place < len(rungs) else None
