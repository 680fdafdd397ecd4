"""What a scheduler does with an engine whose lanes run beside each other."""

import pytest
from tulip_machine import DIES, RAISES_LATE, Machine

from rosebed.core.engine import Completion
from rosebed.core.types import Lane
from rosebed.tulip.config import TulipConfig

MS = 1_000_000
FULL = 16
"""Tokens of a full batch."""


def lanes(machine: Machine) -> list[Lane]:
    return [batch.lane for batch in machine.engine.batches]


def learnt(*, completion: Completion = Completion.POLL, config: TulipConfig | None = None) -> Machine:
    """A machine that has seen a step of one millisecond."""
    machine = Machine(completion=completion, separate_lanes=True, config=config)
    machine.submit([[1]])
    machine.run_dry()
    machine.engine.batches.clear()
    return machine


@pytest.mark.parametrize("completion", list(Completion))
def test_an_online_step_starts_beside_a_bulk_one_and_may_end_first(completion: Completion) -> None:
    machine = learnt(completion=completion)
    bulk = machine.submit([[2] * FULL] * 3, lane=Lane.BULK)
    machine.scheduler.turn()
    online = machine.submit([[3]])
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.BULK, Lane.ONLINE]
    assert len(machine.scheduler.running_steps()) == 2
    machine.finish_step(Lane.ONLINE)
    assert machine.answered[1:] == [online]
    machine.run_dry()
    assert machine.answered[1:] == [online, bulk]
    machine.check_rows(bulk)


@pytest.mark.parametrize("completion", list(Completion))
def test_a_bulk_step_does_not_start_beside_online_ones(completion: Completion) -> None:
    machine = learnt(completion=completion)
    machine.submit([[1]])
    machine.scheduler.turn()
    machine.submit([[2] * FULL] * 2, lane=Lane.BULK)
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.ONLINE]
    machine.finish_step()
    assert lanes(machine) == [Lane.ONLINE, Lane.BULK]


def test_bulk_steps_follow_at_the_lead_of_what_runs_in_both_lanes() -> None:
    machine = learnt()
    machine.submit([[2] * FULL] * 3, lane=Lane.BULK)
    machine.scheduler.turn()
    machine.clock_ns += 500_000
    machine.submit([[1]])
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.BULK, Lane.ONLINE]
    machine.clock_ns += 500_000  # the bulk step should be over, the online one has half of its time to go
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.BULK, Lane.ONLINE]
    machine.clock_ns += 350_000
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.BULK, Lane.ONLINE, Lane.BULK]


def test_bulk_whose_turn_is_due_starts_beside_online_steps_which_go_on() -> None:
    machine = learnt(config=TulipConfig(bulk_wait_s=0.003))
    machine.submit([[2] * FULL] * 3, lane=Lane.BULK)
    machine.submit([[3] * FULL] * 9)
    machine.scheduler.turn()
    assert lanes(machine) == [Lane.ONLINE] * 2
    for _ in range(3):
        machine.finish_step(Lane.ONLINE)
    assert lanes(machine) == [Lane.ONLINE] * 4 + [Lane.BULK, Lane.ONLINE]


def test_online_steps_wait_for_a_bulk_one_that_they_starve() -> None:
    machine = learnt(config=TulipConfig(bulk_wait_s=0.003))
    machine.submit([[2] * FULL] * 2, lane=Lane.BULK)
    machine.scheduler.turn()
    machine.submit([[3] * FULL] * 30)
    for _ in range(4):
        machine.scheduler.turn()
        machine.finish_step(Lane.ONLINE)
    # Predicted to take 1 ms, it has run for 4, of which 3 are allowed.
    assert machine.running(Lane.ONLINE) == 2
    machine.clock_ns += 1
    machine.finish_step(Lane.ONLINE)
    machine.finish_step(Lane.ONLINE)
    assert (machine.running(Lane.ONLINE), machine.running(Lane.BULK)) == (0, 1)
    machine.finish_step(Lane.BULK)
    assert machine.running(Lane.ONLINE) == 2
    machine.run_dry()
    assert machine.scheduler.idle


def test_what_fails_in_one_lane_runs_again_there() -> None:
    machine = learnt()
    bulk = machine.submit([[1], [RAISES_LATE], [3]], lane=Lane.BULK)
    machine.scheduler.turn()
    online = machine.submit([[4]])
    machine.run_dry()
    assert list(bulk.errors) == [1]
    assert online.errors == {}
    machine.check_rows(bulk)
    assert all((batch.lane is Lane.ONLINE) == (batch.token_ids.tolist() == [4]) for batch in machine.engine.batches)


def test_the_death_of_the_engine_ends_both_lanes() -> None:
    machine = learnt()
    states = [machine.submit([[DIES]], lane=Lane.BULK)]
    machine.scheduler.turn()
    states += [machine.submit([[1]]), machine.submit([[2]])]
    machine.run_dry()
    assert all(state.failure is not None for state in states)
    assert machine.deaths == ["fault: die"]


def test_a_step_that_another_slowed_down_teaches_only_what_it_took_at_most() -> None:
    machine = learnt()
    machine.submit([[2] * FULL], lane=Lane.BULK)
    machine.scheduler.turn()
    machine.submit([[3]])
    machine.scheduler.turn()
    machine.clock_ns += 4 * MS
    machine.finish_step(Lane.ONLINE)
    machine.finish_step(Lane.BULK)
    assert machine.scheduler.step_times.table == {64: MS}
    machine.submit([[2] * FULL], lane=Lane.BULK)
    machine.scheduler.turn()
    machine.submit([[3]])
    machine.scheduler.turn()
    machine.clock_ns -= MS // 2
    machine.finish_step(Lane.ONLINE)
    assert machine.scheduler.step_times.table == {64: 0.75 * MS}
