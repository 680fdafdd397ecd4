"""What the bodies of requests may cost a worker while they are on their way: bytes, time, connections."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive

from rosebed.core.errors import BodyTimeout, Overloaded

MAX_OPEN_BODIES = 8192
"""Bodies that may be on their way at once: half of a worker's connections, so that the others still get answers."""


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

    async def next_part(self, receive: Receive) -> Any:
        """The next ASGI message. BodyTimeout if none comes."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await receive()
        except TimeoutError:
            raise BodyTimeout(f"nothing of the body came for {self._timeout_s:g} s (--body-timeout-s)") from None
