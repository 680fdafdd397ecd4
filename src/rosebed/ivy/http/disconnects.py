"""Notices clients that left. Quick requests cost nothing: only those still running at a tick are watched."""

import asyncio
import time

from rosebed.ivy.http.call import Call

TICK_S = 0.1
"""A request older than this is watched; its client's leaving is then noticed at once."""


class DisconnectWatch:
    """The requests in progress of one worker, and a task for each one that takes long.

    A task per request that waits for its disconnect would cost every short request more than parsing it does.
    """

    def __init__(self, tick_s: float = TICK_S) -> None:
        self._tick_s = tick_s
        self._started: dict[Call, float] = {}
        self._watchers: dict[Call, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """Requests in progress."""
        return len(self._started)

    def add(self, call: Call, now_s: float) -> None:
        """A request has begun, at `now_s` of `time.perf_counter`."""
        self._started[call] = now_s

    def discard(self, call: Call) -> None:
        """It has ended."""
        self._started.pop(call, None)
        if (watcher := self._watchers.pop(call, None)) is not None:
            watcher.cancel()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            self._watch_older_than(time.perf_counter() - self._tick_s)

    def _watch_older_than(self, horizon_s: float) -> None:
        for call, started_s in self._started.items():
            if started_s > horizon_s:
                return  # in order of arrival: all others are younger
            if call.body_was_read and call not in self._watchers:
                self._watchers[call] = asyncio.create_task(_cancel_on_disconnect(call))


async def _cancel_on_disconnect(call: Call) -> None:
    await call.wait_disconnect()
    call.disconnected = True
    if call.task is not None:
        call.task.cancel()
