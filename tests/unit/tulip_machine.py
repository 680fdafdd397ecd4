"""A scheduler over a `FakeEngine` whose steps end by hand, with the books of a second, naive accountant beside it."""

from collections.abc import Iterable

import numpy as np

from rosebed.core.engine import BatchLimits, Completion
from rosebed.core.types import Batch, Lane, OutputKind, Sequence
from rosebed.testing import FakeEngine, Faults, expected_rows, fake_info, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.cost import Cost
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.request import RequestState
from rosebed.tulip.scheduler import Scheduler

RAISES, RAISES_LATE, NON_FINITE, POISON, DIES = 29_991, 29_992, 29_993, 29_994, 29_995
FAULTS = Faults(
    raise_in_step={RAISES}, raise_in_result={RAISES_LATE}, non_finite={NON_FINITE}, poison={POISON}, die={DIES}
)
BLAMED = {
    RAISES: "StepFailed",
    RAISES_LATE: "StepFailed",
    NON_FINITE: "NonFiniteOutput",
    POISON: "NonFiniteOutput",
}
"""What a sequence holding such an id fails with."""
LIMITS = BatchLimits(tokens=16, sequences=6, spans=7, output_bytes=256, stretched_tokens=20)
CAPACITY = Cost(tokens=120, sequences=20, spans=30, output_bytes=2000)


def small_queue() -> TulipConfig:
    """A queue of `CAPACITY` a lane, in which bulk work waits 3 ms for its turn."""
    return TulipConfig(
        max_queued_tokens=CAPACITY.tokens,
        max_queued_sequences=CAPACITY.sequences,
        max_queued_spans=CAPACITY.spans,
        max_queued_output_bytes=CAPACITY.output_bytes,
        bulk_wait_s=0.003,
    )


class Machine:
    """Drives a scheduler by hand; `clock_ns` stands still unless it is moved."""

    def __init__(
        self,
        *,
        completion: Completion = Completion.POLL,
        separate_lanes: bool = False,
        limits: BatchLimits = LIMITS,
        config: TulipConfig | None = None,
    ) -> None:
        self.clock_ns = 1_000_000_000
        self.deaths: list[str] = []
        self.answered: list[RequestState] = []
        self.submitted: list[RequestState] = []
        self.abandoned: set[RequestState] = set()
        self._seen_batches = self._seen_answers = 0
        self.metrics = TulipMetrics()
        self.engine = FakeEngine(
            fake_info(limits=limits),
            completion=completion,
            separate_lanes=separate_lanes,
            by_hand=True,
            faults=FAULTS,
            clock=lambda: 0.0,
        )
        self.scheduler = Scheduler(
            self.engine,
            config or TulipConfig(),
            metrics=self.metrics,
            on_step=lambda _lazy: None,
            on_death=self.deaths.append,
            clock=lambda: self.clock_ns,
        )

    def submit(self, inputs: Iterable[Iterable[int]], *, lane: Lane = Lane.ONLINE, timeout_ns: int = 0) -> RequestState:
        """One request; each of `inputs` is the token ids of a sequence."""
        sequences = tuple(
            fake_sequence(token_ids, index=index, outputs=frozenset({OutputKind.DENSE}))
            for index, token_ids in enumerate(inputs)
        )
        state = self.scheduler.submit(sequences, on_done=self.answered.append, lane=lane, timeout_ns=timeout_ns)
        self.submitted.append(state)
        return state

    def abandon(self, state: RequestState) -> None:
        """The caller of `state` leaves."""
        if not state.done:
            self.abandoned.add(state)
        self.scheduler.abandon(state)

    def finish_step(self, lane: Lane | None = None) -> bool:
        """End the oldest step, of any lane or of `lane`, and let the scheduler notice; False if none runs."""
        if not self.running(lane):
            return False
        self.engine.finish_next(lane)
        self.clock_ns += 1_000_000
        self.scheduler.turn()
        return True

    def running(self, lane: Lane | None = None) -> int:
        """Steps of any lane, or of `lane`, that the engine works on."""
        return sum(lane is None or step.batch.lane is lane for step in self.engine.unfinished)

    def run_dry(self) -> None:
        """Finish everything."""
        self.scheduler.turn()
        while self.finish_step():
            pass

    def new_batches(self) -> list[Batch]:
        """Batches stepped since the last call."""
        seen, self._seen_batches = self._seen_batches, len(self.engine.batches)
        return list(self.engine.batches)[seen:]

    def new_answers(self) -> list[RequestState]:
        """Requests answered since the last call."""
        seen, self._seen_answers = self._seen_answers, len(self.answered)
        return self.answered[seen:]

    @property
    def batches(self) -> list[list[list[int]]]:
        """Token ids of each sequence of each batch stepped."""
        return [[sequence.token_ids.tolist() for sequence in batch.sequences] for batch in self.engine.batches]

    def first_runs(self, lane: Lane) -> list[tuple[int, int]]:
        """(number of the request, index of the sequence) of all of `lane` that were stepped, by their first step."""
        place = {
            sequence: (number, sequence.index)
            for number, state in enumerate(self.submitted)
            if state.lane is lane
            for sequence in state.sequences
        }
        stepped = (sequence for batch in self.engine.batches for sequence in batch.sequences)
        return list(dict.fromkeys(place[sequence] for sequence in stepped if sequence in place))

    def check_rows(self, state: RequestState) -> None:
        """Every sequence of an answered request has the right rows or the right error."""
        for index, sequence in enumerate(state.sequences):
            fault = _fault_of(sequence)
            error = state.errors.get(index)
            assert (type(error).__name__ if error else None) == BLAMED.get(fault)
            if error is None:
                start, stop = state.row_starts[OutputKind.DENSE][index : index + 2]
                expected = expected_rows(sequence, OutputKind.DENSE, self.engine.info)
                assert np.array_equal(state.rows[OutputKind.DENSE][start:stop], expected)


def _fault_of(sequence: Sequence) -> int:
    ids = set(sequence.token_ids.tolist())
    return next((fault for fault in BLAMED if fault in ids), 0)
