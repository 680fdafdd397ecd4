"""What the bodies of requests may cost a worker while they are on their way: bytes, time, connections."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

from rosebed.core.errors import BodyTimeout, Overloaded

MAX_OPEN_BODIES = 8192
"""Bodies that may be on their way at once: half of a worker's connections, so that the others still get answers."""

SLOWEST_BYTES_PER_S = 4096
"""A body that comes more slowly in the long run is taken for one that stalls."""


class BodyIntake:
    """The bodies that one worker is reading."""

    def __init__(self, *, max_bytes: int, timeout_s: float, max_open: int = MAX_OPEN_BODIES) -> None:
        self.max_bytes = max_bytes
        """Largest body."""
        self._timeout_s = timeout_s
        self._max_open = max_open
        self._num_open = 0

    @contextmanager
    def open(self) -> Generator[None]:
        """While one more body is read. Overloaded if too many are."""
        if self._num_open >= self._max_open:
            raise Overloaded(f"{self._max_open} bodies are on their way already")
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1

    async def next_part(self, receive: Receive, since_s: float, num_bytes: int) -> Any:
        """The next ASGI message of a body that began to come at `since_s` of the loop's clock, `num_bytes` so far.

        BodyTimeout if none comes, or the body too slowly.
        """
        try:
            async with asyncio.timeout_at(since_s + self._timeout_s + num_bytes / SLOWEST_BYTES_PER_S):
                return await receive()
        except TimeoutError:
            raise BodyTimeout(
                f"{num_bytes} bytes of the body came in {asyncio.get_running_loop().time() - since_s:.0f} s "
                f"(--body-timeout-s)"
            ) from None
