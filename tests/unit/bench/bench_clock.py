"""A clock that a test holds, and a server that works by it: whole minutes pass in no time, to the nanosecond."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from rosebed.bench.targets.base import Stages
from rosebed.core.errors import RosebedError

Result = TypeVar("Result")

MS = 1_000_000
SETTLING_TURNS = 50
"""Turns of the event loop after which everything that can happen at one time has happened."""


class VirtualClock:
    """Time goes on only when everybody waits for it."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._order = count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep_until(self, due_ns: int) -> None:
        if due_ns > self._now_ns:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (due_ns, next(self._order), woken))
            await woken

    def pass_time(self, duration_ns: int) -> None:
        """As when something blocks the event loop."""
        self._now_ns += duration_ns

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Let time pass until `work` is done."""
        task = asyncio.create_task(work)
        while not task.done():
            for _ in range(SETTLING_TURNS):
                await asyncio.sleep(0)
            if not task.done():
                self._now_ns, _, woken = heapq.heappop(self._sleepers)
                woken.set_result(None)
        return task.result()


class OneAtATime:
    """A server that answers one request after the other; `service_ns` says how long number i takes."""

    def __init__(self, clock: VirtualClock, service_ns: Callable[[int], int]) -> None:
        self._clock = clock
        self._service_ns = service_ns
        self._turn = asyncio.Lock()
        self.num_connections = 0
        self.num_requests = 0
        self.failing: dict[int, RosebedError] = {}
        """Requests by number, and what is raised for them."""

    async def connect(self) -> "ServerConnection":
        self.num_connections += 1
        return ServerConnection(self)

    async def serve(self) -> Stages:
        async with self._turn:
            number = self.num_requests
            self.num_requests += 1
            await self._clock.sleep_until(self._clock.now_ns() + self._service_ns(number))
        if number in self.failing:
            raise self.failing[number]
        return Stages()


class ServerConnection:
    def __init__(self, server: OneAtATime) -> None:
        self._server = server
        self.is_closed = False

    async def exchange(self, payload: object) -> Stages:
        assert not self.is_closed
        return await self._server.serve()

    async def close(self) -> None:
        self.is_closed = True
