"""The scheduler under arbitrary histories: invariants are checked after every operation."""

import random
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tulip_invariants import check_all, check_device_is_busy, check_everything_ended
from tulip_machine import CAPACITY, DIES, NON_FINITE, POISON, RAISES, RAISES_LATE, Machine, small_queue

from rosebed.core.engine import Completion
from rosebed.core.errors import Overloaded, Unavailable
from rosebed.core.types import Lane

FAULTY = (RAISES, RAISES_LATE, NON_FINITE, POISON)

ids = st.integers(0, 1000)
usual = st.lists(ids, min_size=1, max_size=4)
oversized = st.lists(ids, min_size=17, max_size=20)
faulty = st.tuples(usual, st.sampled_from(FAULTY)).map(lambda pair: [*pair[0], pair[1]])
one_input = st.sampled_from([usual] * 10 + [oversized, faulty]).flatmap(lambda strategy: strategy)
inputs = st.integers(1, 5).flatmap(lambda count: st.lists(one_input, min_size=count, max_size=count))
deadlines = st.one_of(st.just(0), st.just(0), st.just(0), st.integers(1, 5_000_000))


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come, go, expire and fail while steps end one by one."""

    @initialize(completion=st.sampled_from(list(Completion)), separate_lanes=st.booleans())
    def start(self, completion: Completion, separate_lanes: bool) -> None:
        self.machine = Machine(completion=completion, separate_lanes=separate_lanes, config=small_queue())

    @rule(batch=inputs, lane=st.sampled_from(list(Lane)), timeout_ns=deadlines)
    def submit(self, batch: list[list[int]], lane: Lane, timeout_ns: int) -> None:
        held = self.machine.scheduler.admission.held(lane)
        try:
            state = self.machine.submit(batch, lane=lane, timeout_ns=timeout_ns)
        except Unavailable:
            assert self.machine.deaths
        except Overloaded:
            assert self.machine.scheduler.admission.held(lane) == held
        else:
            assert self.machine.scheduler.admission.held(lane) == held.plus(state.cost(0, len(batch)))

    @rule()
    def turn(self) -> None:
        self.machine.scheduler.turn()
        check_device_is_busy(self.machine)

    @rule(num_steps=st.integers(1, 4), lane=st.sampled_from([None, *Lane]))
    def finish_steps(self, num_steps: int, lane: Lane | None) -> None:
        lane = lane if self.machine.engine.separate_lanes else None
        for _ in range(num_steps):
            if self.machine.finish_step(lane):
                check_device_is_busy(self.machine)

    @rule(elapsed_ns=st.integers(0, 4_000_000))
    def pass_time(self, elapsed_ns: int) -> None:
        self.machine.clock_ns += elapsed_ns

    @precondition(lambda self: bool(self.machine.submitted))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.machine.abandon(data.draw(st.sampled_from(self.machine.submitted)))

    @precondition(lambda self: bool(self.machine.submitted))
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.machine.scheduler.expire(data.draw(st.sampled_from(self.machine.submitted)))

    @precondition(lambda self: len(self.machine.submitted) > 5)
    @rule(lane=st.sampled_from(list(Lane)))
    def kill_engine(self, lane: Lane) -> None:
        with suppress(Overloaded, Unavailable):
            self.machine.submit([[DIES]], lane=lane)

    @invariant()
    def hold(self) -> None:
        check_all(self.machine)

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.run_dry()
            check_everything_ended(self.machine)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("completion", list(Completion))
@pytest.mark.parametrize("separate_lanes", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_long_random_histories(seed: int, completion: Completion, separate_lanes: bool) -> None:
    chance = random.Random(seed)
    machine = Machine(completion=completion, separate_lanes=separate_lanes, config=small_queue())
    for _ in range(300):
        _do_something(machine, chance)
        check_all(machine)
    machine.run_dry()
    check_everything_ended(machine)
    assert machine.metrics.tokens > CAPACITY.tokens


def _do_something(machine: Machine, chance: random.Random) -> None:
    draw = chance.random()
    if draw < 0.45:
        with suppress(Overloaded):
            batch = [_random_input(chance) for _ in range(chance.randint(1, 5))]
            machine.submit(batch, lane=chance.choice(list(Lane)), timeout_ns=chance.choice([0, 0, 0, 2_000_000]))
    elif draw < 0.9:
        machine.clock_ns += chance.randint(0, 500_000)
        machine.finish_step(chance.choice([None, *Lane]) if machine.engine.separate_lanes else None)
        machine.scheduler.turn()
        check_device_is_busy(machine)
    elif machine.submitted:
        machine.abandon(chance.choice(machine.submitted[-5:]))


def _random_input(chance: random.Random) -> list[int]:
    draw = chance.random()
    length = chance.randint(17, 20) if draw < 0.05 else chance.randint(1, 5)
    token_ids = [chance.randint(0, 1000) for _ in range(length)]
    return [*token_ids, chance.choice(FAULTY)] if draw > 0.95 else token_ids
