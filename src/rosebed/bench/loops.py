"""The two ways to send load. Closed: each client sends when its last answer has come. Open: the clock says when.

A closed loop slows down with its server, so its latencies leave out what users would have waited meanwhile. In an open
loop latency counts from the time that a request should have been sent, whatever held it up.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import cycle

from rosebed.bench.clock import Clock
from rosebed.bench.pool import ConnectionPool
from rosebed.bench.recorder import Recorder, Shot

FAILURES_IN_A_ROW = 10
"""After so many, a client of a closed loop gives up: it would only count how fast a dead server refuses."""


class Budget:
    """When the clients of a closed loop stop: at a time or after a number of requests, whichever comes first."""

    def __init__(self, clock: Clock, *, end_ns: int, max_requests: int | None = None) -> None:
        self._clock = clock
        self._end_ns = end_ns
        self._left = max_requests

    def take(self, *, is_first: bool) -> bool:
        """Whether one more request may be sent. Time does not stop a client's first."""
        if self._left is not None:
            if self._left == 0:
                return False
            self._left -= 1
        return is_first or self._clock.now_ns() < self._end_ns


async def closed_loop(
    pools: Sequence[ConnectionPool], shots: Sequence[Shot], recorder: Recorder, budget: Budget
) -> None:
    """One client for each of `pools`, which needs one connection only; client i begins with shot i and goes round."""
    async with asyncio.TaskGroup() as tasks:
        for index, pool in enumerate(pools):
            start = index % len(shots)
            tasks.create_task(_client(pool, (*shots[start:], *shots[:start]), recorder, budget))


async def _client(pool: ConnectionPool, shots: Sequence[Shot], recorder: Recorder, budget: Budget) -> None:
    failures = 0
    for number, shot in enumerate(cycle(shots)):
        if failures == FAILURES_IN_A_ROW or not budget.take(is_first=number == 0):
            return
        failures = 0 if await recorder.send(pool, shot) else failures + 1


async def open_loop(
    pool: ConnectionPool, shots: Sequence[Shot], recorder: Recorder, *, due_ns: Iterable[int], clock: Clock
) -> None:
    """Send a shot at each time of `due_ns` (ascending), going round; return when all are answered."""
    async with asyncio.TaskGroup() as tasks:
        for intended_ns, shot in zip(due_ns, cycle(shots), strict=False):
            await clock.sleep_until(intended_ns)
            tasks.create_task(recorder.send(pool, shot, intended_ns=intended_ns))
