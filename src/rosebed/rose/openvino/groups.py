"""Which sequences of a batch go through the model together: a compiled model takes them in rows of one length.

Pure numpy. Most rows are not full: what pads them is computed for nothing, but so is what every further call costs.
"""

from dataclasses import dataclass

import numpy as np

from rosebed.core.types import Int32Array

MAX_PADDING = 8
"""Tokens of padding in one group. A call costs as much as so many (MiniLM, EPYC: 0.6 ms and 0.13 ms per token on two
threads, 1.3 and 0.26 on one; MPNet ten times both)."""
MAX_TOKENS = 2048
"""Of one group, padding included, unless one sequence has more: what is computed of it then stays in the caches."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Sequences that share a call."""

    members: Int32Array
    """int32[num_sequences], which of the batch, longest first."""
    length: int
    """Tokens of the longest: of each row."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and their length."""
        return len(self.members), self.length


def near_lengths(lengths: Int32Array) -> list[Group]:
    """Every sequence of a batch, int32[num_sequences] tokens each, in groups of which none is padded by more than
    `MAX_PADDING`."""
    if len(lengths) == 1:
        return [Group(np.zeros(1, np.int32), int(lengths[0]))]
    order = np.argsort(-lengths, kind="stable").astype(np.int32)
    groups: list[Group] = []
    first, longest, padding = 0, int(lengths[order[0]]), 0
    for place, length in enumerate(lengths[order].tolist()):
        padding += longest - length
        if padding > MAX_PADDING or (place - first + 1) * longest > max(MAX_TOKENS, longest):
            groups.append(Group(order[first:place], longest))
            first, longest, padding = place, length, 0
    groups.append(Group(order[first:], longest))
    return groups
