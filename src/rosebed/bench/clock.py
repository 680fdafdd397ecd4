"""Time as the load generator needs it. A protocol, so that a test can hold the clock."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds that never go back."""

    def now_ns(self) -> int: ...

    async def sleep_until(self, due_ns: int) -> None:
        """Return at `due_ns`, or at once if that is over."""
        ...


class MonotonicClock:
    """The machine's clock, the same for all its processes."""

    def __init__(self) -> None:
        self._sleeper = ThreadPoolExecutor(1, thread_name_prefix="bench-clock")

    def now_ns(self) -> int:
        return time.monotonic_ns()

    async def sleep_until(self, due_ns: int) -> None:
        # NOTE: event loops wake up on whole milliseconds, a sleeping thread within a tenth of one.
        if due_ns > time.monotonic_ns():
            await asyncio.get_running_loop().run_in_executor(self._sleeper, _sleep_until, due_ns)

    def close(self) -> None:
        self._sleeper.shutdown()


def _sleep_until(due_ns: int) -> None:
    while (left_ns := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)
