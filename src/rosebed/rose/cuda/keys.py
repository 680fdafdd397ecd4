"""Which CUDA graphs exist: a ladder of token counts, and the smallest rung that holds a batch. Knows no tensors."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rosebed.core.types import Lane

SMALL_RUNGS = (16, 32)
"""Below the published ladder: short queries are common, and the products for 16 tokens take less than for 64."""
FINE_STEP, FINE_MOST = 64, 1024
COARSE_STEP = 256
"""The published buckets: multiples of 64, then of 256."""

MAX_GRAPHS = 128
"""Of one engine, however many backends it has."""
BULK_STEP = 512
"""Distance of the bulk lane's rungs above `FINE_MOST`."""

ROWS_LEAST = 64
SEQUENCES_LEAST = 16
TOKENS_PER_SEQUENCE = 64

SEQUENCES_AS_DATA = "triton"
"""The backend whose kernel finds work by a list, and for which the number of sequences is no axis at all."""
PAY_PER_SEQUENCE = frozenset({"torch-varlen", "flashinfer-fa2", "fa4"})
"""Backends that launch work for empty sequences too, so that a key for few of them pays."""


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What a captured graph is fixed to. It serves every batch that is no larger on any axis."""

    num_tokens: int
    attention: str
    """Name of the attention backend."""
    max_sequences: int | None = None
    """Sequences that attention is launched for; None for as many as there are vectors."""
    slot: Lane = Lane.ONLINE
    """Whose memory and stream it is bound to."""

    @staticmethod
    def holding(num_tokens: int, attention: str, num_sequences: int, *, slot: Lane = Lane.ONLINE) -> "GraphKey":
        """The key of exactly `num_tokens` whose attention is launched for at least so many sequences."""
        if attention == SEQUENCES_AS_DATA:
            return GraphKey(num_tokens, attention, slot=slot)
        few = few_sequences(num_tokens)
        if attention in PAY_PER_SEQUENCE and num_sequences <= few:
            return GraphKey(num_tokens, attention, few, slot)
        return GraphKey(num_tokens, attention, sequence_capacity(num_tokens), slot)

    @property
    def num_rows(self) -> int:
        """Dense vectors it can return: one for every four tokens, which even three-token sequences rarely exceed."""
        return max(ROWS_LEAST, self.num_tokens // 4)

    @property
    def attended_sequences(self) -> int:
        """Sequences that attention is launched for, empty ones included."""
        return self.num_rows if self.max_sequences is None else self.max_sequences


def ladder(max_tokens: int) -> tuple[int, ...]:
    """Token counts to capture, ascending; the last one is the first rung that holds `max_tokens`."""
    rungs = [*SMALL_RUNGS, *range(FINE_STEP, FINE_MOST + 1, FINE_STEP)]
    while rungs[-1] < max_tokens:
        rungs.append(rungs[-1] + COARSE_STEP)
    return tuple(rungs[: bisect_left(rungs, max_tokens) + 1])


def bulk_ladder(rungs: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `rungs` that the bulk lane's graphs are captured for: powers of two to `FINE_MOST`, then multiples of
    `BULK_STEP`, and the last one. Its batches are full or the last of their job, so that few sizes between matter."""
    return tuple(rung for rung in rungs if _is_bulk_rung(rung) or rung == rungs[-1])


def _is_bulk_rung(rung: int) -> bool:
    return not rung & (rung - 1) if rung <= FINE_MOST else not rung % BULK_STEP


def in_slot(keys: Iterable[GraphKey], slot: Lane) -> list[GraphKey]:
    """The same keys, bound to another slot."""
    return [replace(key, slot=slot) for key in keys]


def tokens_for_rows(num_rows: int) -> int:
    """The least `num_tokens` of a key that returns so many rows."""
    return 4 * num_rows if num_rows > ROWS_LEAST else 0


def few_sequences(num_tokens: int) -> int:
    """Sequences of a key for backends that pay for empty ones, while a batch has no more."""
    return max(4, num_tokens // 1024)


def sequence_capacity(num_tokens: int) -> int:
    """Most sequences of a key of other backends than ours: with more, none of them can be long."""
    return max(SEQUENCES_LEAST, num_tokens // TOKENS_PER_SEQUENCE)


def tokens_for_sequences(num_sequences: int) -> int:
    """The least `num_tokens` of a key of such a backend that takes so many sequences."""
    return TOKENS_PER_SEQUENCE * num_sequences if num_sequences > SEQUENCES_LEAST else 0


def smallest_key(
    rungs: tuple[int, ...], num_tokens: int, attention: str, num_sequences: int = 1, *, slot: Lane = Lane.ONLINE
) -> GraphKey | None:
    """The smallest key that holds so many tokens and sequences; None if the ladder does not reach there."""
    place = bisect_left(rungs, num_tokens)
    return GraphKey.holding(rungs[place], attention, num_sequences, slot=slot) if place < len(rungs) else None


def capture_order(keys: Iterable[GraphKey]) -> tuple[list[GraphKey], list[GraphKey]]:
    """(those that every batch needs: each of half the tokens of the one above; those between), each largest first."""
    coarse: list[GraphKey] = []
    between: list[GraphKey] = []
    last: dict[str, int] = {}
    for key in sorted(keys, key=lambda key: -key.num_tokens):
        least_kept = last.get(key.attention)
        if least_kept is None or key.num_tokens == least_kept or 2 * key.num_tokens <= least_kept:
            last[key.attention] = key.num_tokens
            coarse.append(key)
        else:
            between.append(key)
    return coarse, between


def order_of_slots(online: Iterable[GraphKey], bulk: Iterable[GraphKey]) -> tuple[list[GraphKey], list[GraphKey]]:
    """(keys that every batch of the online lane needs, all others in the order in which they are worth capturing).

    The bulk lane's come before what refines the online lane's: without any, a bulk step would run kernel by kernel and
    keep the host from everything else. They are fewer where both would be more than `MAX_GRAPHS`.
    """
    coarse, between = capture_order(online)
    first, second = capture_order(bulk)
    room = max(0, MAX_GRAPHS - len(coarse) - len(between))
    kept = sorted([*first, *second][:room], key=lambda key: -key.num_tokens)
    return coarse, [*kept, *between]


def rungs_of(keys: Iterable[GraphKey]) -> dict[str, tuple[int, ...]]:
    """Attention backend → ladder of its keys; without rungs that lack some of the keys that others have."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for key in keys:
        counts[key.attention][key.num_tokens] += 1
    return {
        attention: tuple(sorted(rung for rung, count in rungs.items() if count == max(rungs.values())))
        for attention, rungs in counts.items()
    }
