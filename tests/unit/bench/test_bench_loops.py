"""Closed and open loops under a clock that the test holds: every latency to the nanosecond."""

import numpy as np
import pytest
from bench_clock import MS, OneAtATime, VirtualClock

from rosebed.bench.loops import FAILURES_IN_A_ROW, Budget, closed_loop, open_loop
from rosebed.bench.pool import ConnectionPool
from rosebed.bench.recorder import Recorder, Shot
from rosebed.bench.requests import RequestShape
from rosebed.bench.samples import Sample
from rosebed.bench.targets.in_process import InProcessTarget, Result
from rosebed.core.errors import Overloaded, Unavailable

SHOTS = [Shot(RequestShape((3, 4)), None)]
INTERVAL = 10 * MS
STALLED = 5
"""The request that the server hangs on."""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def recorder_at(clock: VirtualClock) -> Recorder:
    return Recorder(lambda answer: answer, clock, timeout_s=60, on_done=lambda _count: None)


def with_a_stall(number: int) -> int:
    return 1000 * MS if number == STALLED else 1 * MS


def latencies(samples: list[Sample]) -> list[int]:
    return [sample.done_ns - sample.intended_ns for sample in samples]


async def run_open(clock: VirtualClock, server: OneAtATime, *, requests: int, limit: int = 1000) -> list[Sample]:
    recorder = recorder_at(clock)
    pool = ConnectionPool(server.connect, limit=limit)
    due_ns = range(0, requests * INTERVAL, INTERVAL)
    await clock.run(open_loop(pool, SHOTS, recorder, due_ns=due_ns, clock=clock))
    return sorted(recorder.samples, key=lambda sample: sample.intended_ns)


def queued(service_ns: list[int]) -> list[int]:
    """What one server in front of a line makes of requests every INTERVAL: their latencies."""
    free_ns, waits = 0, list[int]()
    for number, service in enumerate(service_ns):
        arrival = number * INTERVAL
        free_ns = max(free_ns, arrival) + service
        waits.append(free_ns - arrival)
    return waits


async def test_a_stall_is_in_the_latency_of_all_whom_it_delays(clock: VirtualClock) -> None:
    server = OneAtATime(clock, with_a_stall)
    samples = await run_open(clock, server, requests=200)
    assert latencies(samples) == queued([with_a_stall(i) for i in range(200)])
    assert sum(latency > 500 * MS for latency in latencies(samples)) == 56
    assert [sample.intended_ns for sample in samples] == list(range(0, 200 * INTERVAL, INTERVAL))
    assert all(sample.sent_ns == sample.intended_ns for sample in samples)


async def test_waiting_for_a_connection_is_part_of_the_latency(clock: VirtualClock) -> None:
    server = OneAtATime(clock, with_a_stall)
    samples = await run_open(clock, server, requests=200, limit=1)
    assert server.num_connections == 1
    assert latencies(samples) == queued([with_a_stall(i) for i in range(200)])
    assert samples[STALLED + 1].sent_ns - samples[STALLED + 1].intended_ns == 990 * MS


async def test_a_closed_loop_sees_the_same_stall_once(clock: VirtualClock) -> None:
    server = OneAtATime(clock, with_a_stall)
    recorder = recorder_at(clock)
    budget = Budget(clock, end_ns=10_000 * MS, max_requests=200)
    await clock.run(closed_loop([ConnectionPool(server.connect, limit=1)], SHOTS, recorder, budget))
    assert latencies(recorder.samples) == [with_a_stall(i) for i in range(200)]


async def test_clients_of_a_closed_loop_wait_for_their_own_answers_only(clock: VirtualClock) -> None:
    server = OneAtATime(clock, lambda _number: 2 * MS)
    recorder = recorder_at(clock)
    pools = [ConnectionPool(server.connect, limit=1) for _ in range(3)]
    await clock.run(closed_loop(pools, SHOTS, recorder, Budget(clock, end_ns=12 * MS)))
    assert latencies(recorder.samples) == [2 * MS, 4 * MS] + [6 * MS] * 6
    assert server.num_connections == 3
    assert {(sample.num_sequences, sample.num_tokens) for sample in recorder.samples} == {(2, 7)}


async def test_time_does_not_stop_a_clients_first_request(clock: VirtualClock) -> None:
    server = OneAtATime(clock, lambda _number: 500 * MS)
    recorder = recorder_at(clock)
    pools = [ConnectionPool(server.connect, limit=1) for _ in range(2)]
    await clock.run(closed_loop(pools, SHOTS, recorder, Budget(clock, end_ns=1)))
    assert latencies(recorder.samples) == [500 * MS, 1000 * MS]


async def test_clients_begin_with_different_requests(clock: VirtualClock) -> None:
    server = OneAtATime(clock, lambda _number: 1 * MS)
    recorder = recorder_at(clock)
    shots = [Shot(RequestShape((length,)), None) for length in (1, 2, 3)]
    pools = [ConnectionPool(server.connect, limit=1) for _ in range(2)]
    await clock.run(closed_loop(pools, shots, recorder, Budget(clock, end_ns=1000 * MS, max_requests=6)))
    assert [sample.num_tokens for sample in recorder.samples] == [1, 2, 2, 3, 3, 1]


async def test_failures_are_counted_and_the_connection_is_replaced(clock: VirtualClock) -> None:
    server = OneAtATime(clock, lambda _number: 1 * MS)
    server.failing = {1: Unavailable("gone"), 2: Overloaded("full")}
    recorder = recorder_at(clock)
    budget = Budget(clock, end_ns=1000 * MS, max_requests=5)
    await clock.run(closed_loop([ConnectionPool(server.connect, limit=1)], SHOTS, recorder, budget))
    assert [sample.failed for sample in recorder.samples] == [False, True, True, False, False]
    assert recorder.failures == {"gone": 1, "full": 1}
    assert server.num_connections == 3


async def test_a_client_gives_up_on_a_dead_server(clock: VirtualClock) -> None:
    async def refuse() -> None:
        raise Unavailable("nobody there")

    recorder = recorder_at(clock)
    pool = ConnectionPool(refuse, limit=1)  # pyright: ignore[reportArgumentType]
    await clock.run(closed_loop([pool], SHOTS, recorder, Budget(clock, end_ns=1000 * MS)))
    assert recorder.failures == {"nobody there": FAILURES_IN_A_ROW}
    assert all(sample.failed for sample in recorder.samples)


class Blocking(InProcessTarget):
    """A model in process: nothing else runs while it computes, and time goes on."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def call(self, payload: object) -> Result:
        self._clock.pass_time(5 * MS)
        return Result(np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(("clients", "expected"), [(1, [5, 5, 5, 5]), (2, [5, 10, 10, 10]), (3, [5, 10, 15, 15])])
async def test_clients_of_a_model_in_process_take_turns(clock: VirtualClock, clients: int, expected: list[int]) -> None:
    target = Blocking(clock)
    recorder = Recorder(target.check, clock, timeout_s=60, on_done=lambda _count: None)
    pools = [ConnectionPool(target.connect, limit=1) for _ in range(clients)]
    for pool in pools:
        await pool.fill(1)
    await closed_loop(pools, SHOTS, recorder, Budget(clock, end_ns=1000 * MS, max_requests=4))
    assert latencies(recorder.samples) == [ms * MS for ms in expected]
    for pool in pools:
        await pool.close()
    assert target.num_connections == 0


async def test_no_answer_in_time_is_a_failure(clock: VirtualClock) -> None:
    server = OneAtATime(clock, lambda _number: 1 << 60)
    recorder = Recorder(lambda answer: answer, clock, timeout_s=0.01, on_done=lambda _count: None)
    assert not await recorder.send(ConnectionPool(server.connect, limit=1), SHOTS[0], intended_ns=0)
    assert recorder.failures == {"no answer within 0.01 s": 1}


async def test_what_is_done_is_told(clock: VirtualClock) -> None:
    counts = list[int]()
    recorder = Recorder(lambda answer: answer, clock, timeout_s=60, on_done=counts.append)
    server = OneAtATime(clock, lambda _number: 1 * MS)
    budget = Budget(clock, end_ns=1000 * MS, max_requests=3)
    await clock.run(closed_loop([ConnectionPool(server.connect, limit=1)], SHOTS, recorder, budget))
    assert counts == [2, 2, 2]
    assert np.sum(counts) == 6
