"""Threads for work that would hold up a worker's event loop: what is small goes past what is large."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

LARGE = 1 << 18
"""Characters, bytes or ids from which work is large: about a fifth of a second's worth."""


class Workload:
    """One worker's threads. Large work waits for other large work, so that any number of it takes one thread only."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="work")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large-work")

    async def run(self, size: int, work: Callable[[], Result]) -> Result:
        """The result of `work`, which is called in a thread."""
        pool = self._large if size >= LARGE else self._threads
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Give the threads back."""
        for pool in (self._threads, self._large):
            pool.shutdown(wait=False, cancel_futures=True)
