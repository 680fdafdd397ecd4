"""A request on its way through the scheduler. Knows neither the wire nor the clock."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from rosebed.core.errors import RosebedError
from rosebed.core.outputs import OutputSpecs, StepResult
from rosebed.core.types import Float32Array, Lane, OutputKind, Sequence
from rosebed.tulip.cost import Cost

NEVER = 1 << 63
"""A deadline in nanoseconds that no clock reaches."""

SEQUENCE_BYTES = 512
"""Memory of one sequence's objects, about; tokens and token types, and spans, take 8 bytes each on top."""


class RequestState:
    """What is left of one request, and where its rows go."""

    def __init__(
        self,
        sequences: tuple[Sequence, ...],
        specs: OutputSpecs,
        *,
        lane: Lane = Lane.ONLINE,
        arrived_ns: int = 0,
        deadline_ns: int = NEVER,
        on_done: "Callable[[RequestState], None]",
    ) -> None:
        """`sequences` (at least one) share outputs and dimensions; `on_done` is called once, unless abandoned."""
        self.sequences = sequences
        self.lane = lane
        self.arrived_ns = arrived_ns
        self.deadline_ns = deadline_ns
        self.on_done = on_done
        self.taken = 0
        """Sequences that were taken from the queue: the first ones."""
        self.remaining = len(sequences)
        """Sequences not finished yet."""
        self.done = False
        """Answered or abandoned: rows still in flight are dropped."""
        self.failure: RosebedError | None = None
        """Why the whole request failed."""
        self.errors: dict[int, RosebedError] = {}
        """Why single sequences failed, by index."""
        self.taken_ns = arrived_ns
        """When the last sequence left the queue."""
        self.computed_ns = arrived_ns
        """When the last result came in."""
        self.device_ns = 0
        """Time the device spent on steps that some of the sequences were in."""
        self.num_steps = 0
        """How many steps those were."""
        self.row_starts: dict[OutputKind, list[int]] = {}
        """list[num_sequences + 1] of each kind: sequence i owns rows [row_starts[i], row_starts[i + 1])."""
        self.rows: dict[OutputKind, Float32Array] = {}
        """float32[rows, dim] of each kind, the reply in the making; dim is cut to the request's dimensions."""
        self._tokens: list[int]
        self._spans: list[int]
        self._output_bytes: list[int]
        if len(sequences) == 1:
            self._measure_one(sequences[0], specs)
        else:
            self._measure_many(specs)
        self.total_cost = Cost(self._tokens[-1], len(sequences), self._spans[-1], self._output_bytes[-1])
        """What all sequences cost."""

    def _measure_one(self, sequence: Sequence, specs: OutputSpecs) -> None:
        """As `_measure_many`, for a query by itself, in a third of the time."""
        self._tokens = [0, sequence.num_tokens]
        self._spans = [0, sequence.num_spans]
        num_bytes = 0
        for kind in sequence.outputs if len(sequence.outputs) == 1 else sorted(sequence.outputs):
            spec = specs[kind]
            rows = spec.rows(sequence)
            self.row_starts[kind] = [0, rows]
            num_bytes += rows * spec.row_bytes
        self._output_bytes = [0, num_bytes]

    def _measure_many(self, specs: OutputSpecs) -> None:
        self._tokens = _running_total([sequence.num_tokens for sequence in self.sequences])
        self._spans = _running_total([sequence.num_spans for sequence in self.sequences])
        for kind in sorted(self.sequences[0].outputs):
            self.row_starts[kind] = _running_total([specs[kind].rows(sequence) for sequence in self.sequences])
        per_kind = [[specs[kind].row_bytes * start for start in starts] for kind, starts in self.row_starts.items()]
        self._output_bytes = [sum(amounts) for amounts in zip(*per_kind, strict=True)]

    def allocate(self, specs: OutputSpecs) -> None:
        """Make room for the reply; not before admission, since it is memory that the caller asked for."""
        for kind, starts in self.row_starts.items():
            dim = specs[kind].dim
            if kind is OutputKind.DENSE:
                dim = self.sequences[0].dimensions or dim
            self.rows[kind] = np.empty((starts[-1], dim), np.float32)

    @property
    def held_bytes(self) -> int:
        """Memory of the answer, and of what it answers, which lives as long."""
        rows = sum(rows.nbytes for rows in self.rows.values())
        return rows + SEQUENCE_BYTES * len(self.sequences) + 8 * (self.total_cost.tokens + self.total_cost.spans)

    def cost(self, first: int, stop: int) -> Cost:
        """What the sequences [first, stop) cost."""
        if stop - first == len(self.sequences):
            return self.total_cost
        return Cost(
            self._tokens[stop] - self._tokens[first],
            stop - first,
            self._spans[stop] - self._spans[first],
            self._output_bytes[stop] - self._output_bytes[first],
        )

    def fitting(self, room: Cost) -> int:
        """Where the sequences end that, from `taken` on, cost no more than `room`."""
        first = self.taken
        return min(
            bisect_right(self._tokens, self._tokens[first] + room.tokens) - 1,
            first + room.sequences,
            bisect_right(self._spans, self._spans[first] + room.spans) - 1,
            bisect_right(self._output_bytes, self._output_bytes[first] + room.output_bytes) - 1,
        )

    def store(self, result: StepResult, portion: "Portion", at: int) -> None:
        """Copy the rows of `portion`, whose first sequence was number `at` of the batch."""
        self.device_ns += result.device_ns
        self.num_steps += 1
        for kind, rows in self.rows.items():
            starts = result.layout.slots[kind].row_starts
            source = result.output(kind)[starts[at] : starts[at + portion.num_sequences], : rows.shape[1]]
            own = self.row_starts[kind]
            rows[own[portion.first] : own[portion.stop]] = source


class Portion(NamedTuple):
    """The sequences [first, stop) of a request: what a batch is made of."""

    state: RequestState
    first: int
    stop: int

    @property
    def num_sequences(self) -> int:
        return self.stop - self.first

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return self.state.sequences[self.first : self.stop]

    @property
    def cost(self) -> Cost:
        return self.state.cost(self.first, self.stop)


Portions = tuple[Portion, ...]


def _running_total(amounts: list[int]) -> list[int]:
    """list[len(amounts) + 1] that starts with 0."""
    return list(accumulate(amounts, initial=0))
