"""A pool span for each token: the model's hidden states, through the same pooling as all else. Pure arithmetic.

A replica takes only so many spans of one sequence, so that a long one is asked for in several pieces.
"""

from collections.abc import Iterator
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, replace

import numpy as np

from rosebed.core.types import Float32Array, Int32Array, Sequence


def each_token(num_tokens: int) -> Int32Array:
    """int32[num_tokens, 2]: each token by itself."""
    starts = np.arange(num_tokens, dtype=np.int32)
    return np.stack([starts, starts + np.int32(1)], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Sequences, some of them several times, each time with other spans."""

    sequences: list[Sequence]
    owners: list[int]
    """The original of each."""

    @classmethod
    def cut(cls, sequences: AnySequence[Sequence], most_spans: int) -> "Pieces":
        """No sequence with more than `most_spans`."""
        pairs = list(_pieces(sequences, most_spans))
        return cls([sequence for sequence, _ in pairs], [owner for _, owner in pairs])

    def join(self, rows: AnySequence[Float32Array]) -> list[Float32Array]:
        """The rows of each original, from those of each piece."""
        if self.owners == list(range(len(rows))):
            return list(rows)
        return [
            np.concatenate([rows[piece] for piece, owner in enumerate(self.owners) if owner == original])
            for original in range(self.owners[-1] + 1)
        ]


def _pieces(sequences: AnySequence[Sequence], most_spans: int) -> Iterator[tuple[Sequence, int]]:
    for owner, sequence in enumerate(sequences):
        for start in range(0, sequence.num_spans, most_spans):
            if sequence.num_spans <= most_spans:
                yield sequence, owner
            else:
                yield replace(sequence, pool_spans=sequence.pool_spans[start : start + most_spans]), owner
