"""The scheduler's decisions, one at a time."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tulip_machine import DIES, LIMITS, NON_FINITE, POISON, RAISES, RAISES_LATE, Machine

from rosebed.core.engine import BatchLimits, Completion
from rosebed.core.errors import DeadlineExceeded, Overloaded, PayloadTooLarge, StepFailed, Unavailable
from rosebed.core.types import Batch, Lane
from rosebed.testing.engine import FakeStep
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.cost import Cost

ROOMY = BatchLimits(tokens=100, sequences=100, spans=100, output_bytes=100_000)
MS = 1_000_000


def _learnt(machine: Machine) -> Machine:
    """A machine that has seen a step of one millisecond."""
    machine.submit([[1]])
    machine.run_dry()
    machine.engine.batches.clear()
    return machine


@pytest.mark.parametrize("completion", list(Completion))
def test_an_idle_engine_gets_work_at_once(completion: Completion) -> None:
    machine = Machine(completion=completion)
    machine.submit([[1, 2], [3]])
    machine.scheduler.turn()
    assert machine.batches == [[[1, 2], [3]]]


@pytest.mark.parametrize("completion", list(Completion))
def test_requests_accumulate_while_a_step_runs(completion: Completion) -> None:
    machine = _learnt(Machine(completion=completion))
    machine.submit([[1]])
    machine.scheduler.turn()
    for token_id in (2, 3, 4):
        machine.submit([[token_id]])
        machine.scheduler.turn()
    assert machine.batches == [[[1]]]
    machine.finish_step()
    assert machine.batches == [[[1]], [[2], [3], [4]]]


@pytest.mark.parametrize("completion", list(Completion))
def test_a_full_budget_closes_the_next_batch_while_one_runs(completion: Completion) -> None:
    machine = _learnt(Machine(completion=completion))
    machine.submit([[1]])
    machine.scheduler.turn()
    machine.submit([[2] * 15])
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 1
    machine.submit([[3]])
    machine.scheduler.turn()
    assert machine.batches == [[[1]], [[2] * 15, [3]]]
    machine.submit([[4] * 16])
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 2


def test_polling_closes_the_next_batch_at_the_lead() -> None:
    machine = _learnt(Machine(completion=Completion.POLL))
    machine.submit([[1]])
    machine.scheduler.turn()
    machine.submit([[2]])
    machine.clock_ns += 840_000
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 1
    machine.clock_ns += 10_000  # 150 µs before the predicted end
    machine.scheduler.turn()
    assert machine.batches == [[[1]], [[2]]]
    assert machine.scheduler.num_in_flight == 2


def test_callbacks_close_the_next_batch_when_the_step_ends() -> None:
    machine = _learnt(Machine(completion=Completion.CALLBACK))
    machine.submit([[1]])
    machine.scheduler.turn()
    machine.submit([[2]])
    machine.clock_ns += 10 * MS
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 1
    machine.finish_step()
    assert machine.batches == [[[1]], [[2]]]


def test_what_the_engine_ran_at_once_is_answered_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(completion=Completion.CALLBACK)
    step = machine.engine.step

    def run(batch: Batch) -> FakeStep:
        lazy = step(batch)
        lazy.finish()
        return lazy

    monkeypatch.setattr(machine.engine, "step", run)
    machine.submit([[1], [2]])
    machine.submit([[3]], lane=Lane.BULK)
    assert machine.scheduler.turn()  # and then whoever waits gets to know
    assert [state.sequences[0].token_ids.tolist() for state in machine.answered] == [[1]]
    assert machine.batches == [[[1], [2]]]
    assert machine.scheduler.turn()
    assert machine.batches == [[[1], [2]], [[3]]]
    assert not machine.scheduler.turn()
    assert machine.scheduler.idle


def test_a_request_is_split_over_batches_and_answered_once() -> None:
    machine = Machine()
    state = machine.submit([[i] * 7 for i in range(5)])
    machine.run_dry()
    assert [len(batch) for batch in machine.batches] == [2, 2, 1]
    assert machine.answered == [state]
    machine.check_rows(state)


def test_an_oversized_sequence_runs_alone() -> None:
    machine = Machine()
    machine.submit([[1], [2] * 20, [3]])
    machine.run_dry()
    assert machine.batches == [[[1]], [[2] * 20], [[3]]]


def test_batches_are_of_one_lane_and_online_goes_first() -> None:
    machine = Machine(limits=ROOMY)
    machine.submit([[1]], lane=Lane.BULK)
    machine.submit([[2]], lane=Lane.ONLINE)
    machine.run_dry()
    assert machine.batches == [[[2]], [[1]]]
    assert [batch.lane for batch in machine.engine.batches] == [Lane.ONLINE, Lane.BULK]


def test_bulk_gets_a_batch_after_its_wait_while_online_is_queued() -> None:
    machine = Machine(config=TulipConfig(bulk_wait_s=0.003))
    machine.submit([[100]] * 2, lane=Lane.BULK)
    machine.submit([[i] * 16 for i in range(12)])
    machine.run_dry()
    lanes = [batch.lane for batch in machine.engine.batches]
    # Each step takes 1 ms and two are enqueued at once: bulk is due from the third millisecond on.
    assert lanes == [Lane.ONLINE] * 4 + [Lane.BULK] + [Lane.ONLINE] * 8


@pytest.mark.parametrize("completion", Completion)
def test_online_goes_first_too_where_a_step_takes_longer_than_bulk_waits(completion: Completion) -> None:
    machine = Machine(completion=completion, config=TulipConfig(bulk_wait_s=0.0005))
    machine.submit([[100] * 16] * 4, lane=Lane.BULK)
    machine.scheduler.turn()
    machine.submit([[i] * 16 for i in range(12)])
    machine.run_dry()
    lanes = [batch.lane for batch in machine.engine.batches]
    first = lanes.index(Lane.ONLINE)
    between = [index for index, lane in enumerate(lanes) if lane is Lane.BULK and index > first]
    # Each step takes 1 ms, so that bulk rests for 3; what was enqueued ahead by then still runs.
    assert all(later - earlier >= 4 for earlier, later in pairwise(between))
    assert lanes[first : first + 3] == [Lane.ONLINE] * 3


def test_a_full_bulk_batch_is_not_closed_early() -> None:
    machine = _learnt(Machine(completion=Completion.POLL))
    machine.submit([[1]])
    machine.scheduler.turn()
    machine.submit([[2] * 16], lane=Lane.BULK)
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 1
    machine.submit([[3] * 16])
    machine.scheduler.turn()
    assert machine.batches == [[[1]], [[3] * 16]]


def test_only_the_raising_sequence_fails() -> None:
    for fault in (RAISES, RAISES_LATE):
        machine = Machine(limits=ROOMY)
        first = machine.submit([[1], [2], [fault], [4]])
        second = machine.submit([[5]])
        machine.run_dry()
        assert list(first.errors) == [2]
        assert isinstance(first.errors[2], StepFailed)
        assert "RuntimeError: fault" in first.errors[2].message
        assert second.errors == {}
        machine.check_rows(first)
        machine.check_rows(second)
        assert machine.metrics.errors == {"step_failed": 1}


def test_non_finite_rows_run_again_alone_and_only_the_guilty_fail() -> None:
    machine = Machine(limits=ROOMY)
    innocent = machine.submit([[1], [2]])
    guilty = machine.submit([[3], [POISON], [NON_FINITE]])
    machine.run_dry()
    assert innocent.errors == {}
    assert {index: type(error).__name__ for index, error in guilty.errors.items()} == {
        1: "NonFiniteOutput",
        2: "NonFiniteOutput",
    }
    machine.check_rows(innocent)
    machine.check_rows(guilty)
    assert machine.batches[1:] == [[[1]], [[2]], [[3]], [[POISON]], [[NON_FINITE]]]


def test_a_finite_sequence_beside_a_non_finite_one_does_not_run_twice() -> None:
    machine = Machine(limits=ROOMY)
    state = machine.submit([[1], [NON_FINITE]])
    machine.run_dry()
    assert machine.batches == [[[1], [NON_FINITE]], [[NON_FINITE]]]
    machine.check_rows(state)


def test_the_death_of_the_engine_answers_everybody_at_once() -> None:
    machine = Machine()
    states = [machine.submit([[DIES]]), machine.submit([[1] * 16] * 3), machine.submit([[2]], lane=Lane.BULK)]
    machine.scheduler.turn()
    machine.engine.finish_next()
    machine.scheduler.turn()
    assert machine.answered == states
    assert all(isinstance(state.failure, Unavailable) for state in states)
    assert machine.deaths == ["fault: die"]
    with pytest.raises(Unavailable, match="fault: die"):
        machine.submit([[1]])


def test_cancelled_sequences_leave_the_queue_at_once() -> None:
    machine = Machine()
    state = machine.submit([[1] * 16, [2] * 16, [3] * 16])
    other = machine.submit([[4]])
    machine.scheduler.turn()
    assert machine.scheduler.num_in_flight == 2
    machine.abandon(state)
    assert machine.scheduler.queue.backlog(Lane.ONLINE) == other.cost(0, 1)
    # Those in steps keep their permits until the steps end.
    assert machine.scheduler.admission.held(Lane.ONLINE).tokens == 33
    machine.run_dry()
    assert machine.scheduler.admission.held(Lane.ONLINE) == Cost()
    assert machine.answered == [other]
    assert [3] * 16 not in [sequence for batch in machine.batches for sequence in batch]


def test_a_deadline_drops_what_is_queued() -> None:
    machine = Machine(limits=replace(LIMITS, stretched_tokens=0))
    machine.submit([[1] * 16, [1] * 16])
    late = machine.submit([[2]], timeout_ns=MS // 2)
    on_time = machine.submit([[3]], timeout_ns=10 * MS)
    machine.run_dry()
    assert isinstance(late.failure, DeadlineExceeded)
    assert on_time.failure is None
    assert [[2]] not in machine.batches


def test_a_deadline_answers_a_request_in_flight() -> None:
    machine = Machine()
    state = machine.submit([[1]])
    machine.scheduler.turn()
    machine.scheduler.expire(state)
    assert machine.answered == [state]
    machine.run_dry()
    assert machine.answered == [state]
    assert machine.scheduler.admission.held(Lane.ONLINE) == Cost()


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    machine = Machine(config=TulipConfig(max_queued_tokens=3000))
    machine.submit([[1] * 10])
    machine.run_dry()  # 10 tokens in 1 ms: 10,000 a second
    machine.clock_ns += MS
    machine.submit([[1]] * 3000)
    with pytest.raises(Overloaded, match="3000 tokens are waiting") as caught:
        machine.submit([[1]])
    assert caught.value.retry_after_s == 1
    machine.submit([[1]], lane=Lane.BULK)


def test_a_request_that_never_fits_is_refused_for_good() -> None:
    machine = Machine(config=TulipConfig(max_queued_tokens=30))
    with pytest.raises(PayloadTooLarge, match=r"32 tokens, .* at most 30 \(--max-queued-tokens\)$"):
        machine.submit([[1] * 16] * 2)
    assert machine.scheduler.admission.held(Lane.ONLINE) == Cost()


def test_steps_and_waits_are_measured() -> None:
    machine = Machine()
    state = machine.submit([[1, 2, 3]])
    machine.clock_ns += 2 * MS
    machine.run_dry()
    assert (state.taken_ns - state.arrived_ns, state.computed_ns - state.taken_ns) == (2 * MS, MS)
    assert machine.scheduler.step_times.table == {64: MS}
    assert machine.scheduler.step_times.tokens_per_s == pytest.approx(3000)
    assert machine.metrics.tokens == 3
    assert machine.metrics.step_seconds.total == pytest.approx(0.001)
    assert machine.metrics.queue_seconds.total == pytest.approx(0.002)
    assert machine.metrics.batch_tokens.total == 3
