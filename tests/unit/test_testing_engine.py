"""`FakeEngine` itself: its vectors are the documented ones, and it ends, fails and hangs when told to."""

import threading

import numpy as np
import pytest

from rosebed.core.engine import Completion, Engine
from rosebed.core.errors import Unavailable
from rosebed.core.outputs import OutputSpec, RowsPer, RowStatus
from rosebed.core.types import Batch, Lane, OutputKind, Sequence
from rosebed.testing import FakeEngine, Faults, StepTime, expected_rows, fake_info, fake_sequence

INFO = fake_info(
    normalize=False,
    outputs={
        OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=4),
        OutputKind.SPARSE: OutputSpec(rows_per=RowsPer.TOKEN, dim=1),
        OutputKind.MULTI_VECTOR: OutputSpec(rows_per=RowsPer.TOKEN, dim=2),
        OutputKind.LOGITS: OutputSpec(rows_per=RowsPer.SEQUENCE, dim=3),
    },
)


def _by_definition(hashed: int, dim: int) -> list[float]:
    return [((hashed + 1) * (j + 1) * 40503 % 2**24) / 2**24 - 0.5 for j in range(dim)]


def test_vectors_are_the_documented_ones() -> None:
    spans = np.array([[0, 2], [1, 3]], np.int32)
    sequence = Sequence(
        token_ids=np.array([5, 7, 29_999], np.int32), pool_spans=spans, token_type_ids=np.array([0, 1, 1], np.int32)
    )
    dense = expected_rows(sequence, OutputKind.DENSE, INFO)
    assert dense.tolist() == [_by_definition(5 + 2 * 14, 4), _by_definition(14 + 2 * 30_006, 4)]
    assert expected_rows(sequence, OutputKind.LOGITS, INFO).tolist() == [_by_definition(5 + 28 + 3 * 30_006, 3)]
    assert expected_rows(sequence, OutputKind.SPARSE, INFO).tolist() == [[5 / 2**24], [7 / 2**24], [29_999 / 2**24]]
    multi_vector = [_by_definition(5, 2), _by_definition(14, 2), _by_definition(3 * 29_999, 2)]
    assert expected_rows(sequence, OutputKind.MULTI_VECTOR, INFO).tolist() == multi_vector


def test_dimensions_are_cut_before_normalising() -> None:
    sequence = fake_sequence([1, 2, 3], dimensions=3, normalize=True)
    row = expected_rows(sequence, OutputKind.DENSE, INFO)[0]
    kept = np.array(_by_definition(1 + 4 + 9, 3), np.float32)
    np.testing.assert_allclose(row, [*(kept / np.linalg.norm(kept)), 0], rtol=1e-6)


@pytest.mark.parametrize("completion", list(Completion))
def test_a_step_returns_the_expected_rows(completion: Completion) -> None:
    engine: Engine = FakeEngine(INFO, completion=completion, step_time=StepTime(base_s=0.002))
    kinds = frozenset({OutputKind.DENSE, OutputKind.SPARSE})
    sequences = [fake_sequence([3, 4], outputs=kinds), fake_sequence([9])]
    lazy = engine.step(Batch.pack(sequences))
    result = lazy.result()
    assert result.status.tolist() == [RowStatus.OK, RowStatus.OK]
    for position, sequence in enumerate(sequences):
        for kind in sequence.outputs:
            assert np.array_equal(result.rows(kind, position), expected_rows(sequence, kind, INFO))
    engine.close()


def test_steps_take_their_time_one_after_the_other() -> None:
    now = [100.0]
    step_time = StepTime(base_s=1, per_token_s=0.5)
    engine = FakeEngine(completion=Completion.POLL, step_time=step_time, clock=lambda: now[0])
    first = engine.step(Batch.pack([fake_sequence([1, 2])]))
    second = engine.step(Batch.pack([fake_sequence([1])]))
    for at, ready in [(101.9, (False, False)), (102.0, (True, False)), (103.4, (True, False)), (103.5, (True, True))]:
        now[0] = at
        assert (first.ready(), second.ready()) == ready


def test_a_callback_comes_from_another_thread() -> None:
    engine = FakeEngine(step_time=StepTime(base_s=0.1))
    called: list[str] = []
    done = threading.Event()

    def note() -> None:
        called.append(threading.current_thread().name)
        done.set()

    engine.step(Batch.pack([fake_sequence([1])])).add_done_callback(note)
    assert done.wait(5)
    assert called[0].startswith("fake-engine")
    engine.close()


def test_steps_end_by_hand_in_order() -> None:
    engine = FakeEngine(by_hand=True)
    first, second = (engine.step(Batch.pack([fake_sequence([i])])) for i in (1, 2))
    assert engine.unfinished == (first, second)
    assert engine.finish_next() is first
    assert (first.ready(), second.ready()) == (True, False)
    assert engine.unfinished == (second,)
    called: list[int] = []
    first.add_done_callback(lambda: called.append(1))
    assert called == [1]


def test_separate_lanes_take_their_time_beside_each_other() -> None:
    now = [100.0]
    step_time = StepTime(base_s=1)
    engine = FakeEngine(completion=Completion.POLL, separate_lanes=True, step_time=step_time, clock=lambda: now[0])
    lanes = (Lane.BULK, Lane.BULK, Lane.ONLINE)
    steps = [engine.step(Batch.pack([fake_sequence([1])], lane=lane)) for lane in lanes]
    now[0] = 101.0
    assert [step.ready() for step in steps] == [True, False, True]
    assert engine.unfinished == (steps[1],)


def test_steps_of_a_lane_end_by_hand_in_order() -> None:
    engine = FakeEngine(by_hand=True, separate_lanes=True)
    lanes = (Lane.BULK, Lane.ONLINE, Lane.ONLINE)
    steps = [engine.step(Batch.pack([fake_sequence([1])], lane=lane)) for lane in lanes]
    assert engine.finish_next(Lane.ONLINE) is steps[1]
    assert engine.unfinished == (steps[0], steps[2])
    assert engine.finish_next() is steps[0]


def _outcome(engine: FakeEngine, *sequences: Sequence) -> list[int]:
    step = engine.step(Batch.pack(sequences))
    if engine.unfinished:
        engine.finish_next()
    return step.result().status.tolist()


def test_buffers_are_counted_until_they_are_given_back() -> None:
    engine = FakeEngine(by_hand=True)
    steps = [engine.step(Batch.pack([fake_sequence([i])])) for i in (1, 2)]
    assert engine.num_unreleased == 2
    for _ in range(2):
        steps[0].release()
    assert engine.num_unreleased == 1


def test_faults_strike_by_token_id() -> None:
    faults = Faults(raise_in_step={1}, raise_in_result={2}, non_finite={3}, poison={4})
    engine = FakeEngine(by_hand=True, faults=faults)
    good = fake_sequence([9])
    with pytest.raises(RuntimeError, match="raise_in_step"):
        _outcome(engine, good, fake_sequence([7, 1]))
    with pytest.raises(RuntimeError, match="raise_in_result"):
        _outcome(engine, good, fake_sequence([2]))
    assert _outcome(engine, good, fake_sequence([3])) == [0, 1]
    assert _outcome(engine, good, fake_sequence([4])) == [1, 1]
    assert _outcome(engine, good) == [0]


def test_a_dead_engine_stays_dead() -> None:
    engine = FakeEngine(by_hand=True, faults=Faults(die={1}))
    for ids in ([1], [9]):
        with pytest.raises(Unavailable, match="die"):
            _outcome(engine, fake_sequence(ids))


@pytest.mark.parametrize("completion", list(Completion))
def test_a_hanging_step_blocks_those_behind_it(completion: Completion) -> None:
    engine = FakeEngine(completion=completion, faults=Faults(hang={1}))
    steps = [engine.step(Batch.pack([fake_sequence([i])])) for i in (1, 2)]
    assert [step.ready() for step in steps] == [False, False]
    engine.close()
    with pytest.raises(Unavailable, match="closed"):
        steps[0].result()
