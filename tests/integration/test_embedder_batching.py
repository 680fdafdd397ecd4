"""How the embedder drives an engine: order, limits, steps in flight, failures. Over `FakeEngine`, so without torch."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rosebed.core.engine import BatchLimits
from rosebed.core.errors import Cancelled, NonFiniteOutput
from rosebed.core.outputs import RowStatus, StepResult
from rosebed.core.types import Batch, Lane, OutputKind
from rosebed.core.types import Sequence as TokenSequence
from rosebed.in_process import run_sequences
from rosebed.testing import FakeEngine, Faults, expected_rows, fake_info, fake_sequence
from rosebed.testing.engine import FakeStep

LIMITS = BatchLimits(tokens=32, sequences=4, spans=3, output_bytes=1 << 20)


@contextmanager
def fake_engine(faults: Faults | None = None, limits: BatchLimits = LIMITS) -> Generator[FakeEngine]:
    engine = FakeEngine(fake_info(limits=limits), faults=faults)
    try:
        yield engine
    finally:
        engine.close()


def expected(engine: FakeEngine, sequences: list[TokenSequence]) -> list[list[float]]:
    return [expected_rows(sequence, OutputKind.DENSE, engine.info)[0].tolist() for sequence in sequences]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30))
def test_rows_come_back_in_order_and_batches_stay_within_limits(lengths: list[int]) -> None:
    sequences = [fake_sequence(range(place + 1, place + 1 + length)) for place, length in enumerate(lengths)]
    with fake_engine() as engine:
        vectors = run_sequences(engine, sequences)
        assert vectors.tolist() == expected(engine, sequences)
        assert vectors.shape == (len(lengths), 8)
        assert sum(batch.num_sequences for batch in engine.batches) == len(lengths)
        for batch in engine.batches:
            assert batch.num_tokens <= LIMITS.tokens or batch.num_sequences == 1
            assert batch.num_sequences <= min(LIMITS.sequences, LIMITS.spans)
            assert batch.lane is Lane.BULK


def test_answers_bound_a_batch_too() -> None:
    row_bytes = 4 * 8
    limits = BatchLimits(tokens=1000, sequences=100, spans=100, output_bytes=3 * row_bytes)
    with fake_engine(limits=limits) as engine:
        run_sequences(engine, [fake_sequence([1])] * 7)
        assert [batch.num_sequences for batch in engine.batches] == [3, 3, 1]


def test_longest_sequences_go_first() -> None:
    with fake_engine() as engine:
        run_sequences(engine, [fake_sequence(range(1, 1 + length)) for length in (3, 20, 7, 31, 1)])
        assert [[s.num_tokens for s in batch.sequences] for batch in engine.batches] == [[31], [20, 7, 3], [1]]


class CountingEngine(FakeEngine):
    """Knows how many steps were unreleased when each one began."""

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__(fake_info(limits=LIMITS, max_in_flight=2), faults=faults)
        self.in_flight: list[int] = []

    def step(self, batch: Batch) -> FakeStep:
        self.in_flight.append(self.num_unreleased)
        return super().step(batch)


def test_two_steps_are_in_flight_and_never_more() -> None:
    engine = CountingEngine()
    run_sequences(engine, [fake_sequence(range(1, 30))] * 5)
    engine.close()
    assert engine.in_flight == [0, 1, 1, 1, 1]
    assert engine.num_unreleased == 0


def test_an_error_leaves_no_step_unreleased() -> None:
    engine = CountingEngine(Faults(raise_in_result=frozenset({13})))
    with pytest.raises(RuntimeError, match="raise_in_result"):
        run_sequences(engine, [fake_sequence([13] * 30), *[fake_sequence(range(1, 30))] * 3])
    engine.close()
    assert engine.num_unreleased == 0


def test_a_sequence_that_poisons_its_batch_alone_is_blamed() -> None:
    with fake_engine(Faults(poison=frozenset({13}))) as engine, pytest.raises(NonFiniteOutput, match=r"input\[1\]"):
        run_sequences(engine, [fake_sequence([1, 2]), fake_sequence([13, 2]), fake_sequence([3, 4])])


class SpoiltOnce(FakeEngine):
    """The first step's rows are all NaN."""

    def compute(self, batch: Batch) -> StepResult:
        result = super().compute(batch)
        if batch is self.batches[0]:
            result.buffer[:] = 0xFF
            result.status[:] = RowStatus.NON_FINITE
        return result


def test_neighbours_of_a_bad_row_get_their_vectors_from_a_second_try() -> None:
    engine = SpoiltOnce(fake_info(limits=LIMITS))
    sequences = [fake_sequence([index, 2]) for index in range(1, 4)]
    vectors = run_sequences(engine, sequences)
    engine.close()
    assert np.array_equal(vectors, expected(engine, sequences))
    assert [batch.num_sequences for batch in engine.batches] == [3, 1, 1, 1]


class Abandoned(FakeEngine):
    """Its caller leaves once `steps` batches were begun; no row is finite."""

    def __init__(self, steps: int) -> None:
        super().__init__(fake_info(limits=LIMITS), faults=Faults(non_finite=frozenset({13})))
        self.event = Event()
        self.steps = steps

    def step(self, batch: Batch) -> FakeStep:
        if len(self.batches) + 1 == self.steps:
            self.event.set()
        return super().step(batch)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_call_whose_caller_has_left_begins_no_other_batch(steps: int) -> None:
    engine = Abandoned(steps)
    with pytest.raises(Cancelled):
        run_sequences(engine, [fake_sequence([13, 2])] * 9, engine.event)  # three batches, then one by one
    engine.close()
    assert len(engine.batches) == steps
    assert engine.num_unreleased == 0


def test_a_queued_call_whose_caller_has_left_begins_no_batch() -> None:
    abandoned = Event()
    abandoned.set()
    with fake_engine() as engine:
        with pytest.raises(Cancelled):
            run_sequences(engine, [fake_sequence([1, 2])], abandoned)
        assert not engine.batches
