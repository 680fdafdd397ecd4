"""What may go wrong in a `FakeEngine`, chosen by token id: a test sends the id, and the fault strikes."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from rosebed.core.types import Batch, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Each field is a set of token ids; an id in none of them is harmless."""

    raise_in_step: AbstractSet[int] = frozenset()
    """`step` raises for the batch, as when enqueueing fails."""
    raise_in_result: AbstractSet[int] = frozenset()
    """The step runs, and `result` raises for the whole batch."""
    non_finite: AbstractSet[int] = frozenset()
    """The sequence's rows are NaN."""
    poison: AbstractSet[int] = frozenset()
    """The rows of everything in the batch are NaN."""
    hang: AbstractSet[int] = frozenset()
    """The step, and with it every later one, never completes."""
    die: AbstractSet[int] = frozenset()
    """This step and every later one raise `Unavailable`: the device is gone."""

    def strike(self, ids: AbstractSet[int], batch: Batch) -> bool:
        """Whether some sequence of `batch` holds one of `ids`."""
        return bool(ids) and bool(np.isin(batch.token_ids, list(ids)).any())

    def spoils(self, sequence: Sequence) -> bool:
        """Whether this sequence's own rows are NaN."""
        ids = self.non_finite | self.poison
        return bool(ids) and bool(np.isin(sequence.token_ids, list(ids)).any())
