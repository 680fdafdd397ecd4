"""A request's body on its way: what a connection has read of it, and a handler not taken yet. Knows no sockets."""

import asyncio
from collections.abc import Callable

from rosebed.core.errors import RosebedError


class Body:
    """The body of one request. The connection feeds it, one task takes it."""

    __slots__ = ("_error", "_on_wanted", "_parts", "_waiter", "announced", "is_chunked", "is_complete", "num_waiting")

    def __init__(
        self, *, announced: int = 0, is_chunked: bool = False, on_wanted: Callable[[], None] | None = None
    ) -> None:
        """`announced` is the length that the head gives. `on_wanted` is called when a reader has to wait for more."""
        self.announced = announced
        self.is_chunked = is_chunked
        """Whether it comes in chunks, whose sum the head does not say."""
        self.is_complete = False
        """Whether the last byte has come."""
        self.num_waiting = 0
        """Bytes that came and were not taken yet."""
        self._on_wanted = on_wanted
        self._parts: list[bytes] = []
        self._error: RosebedError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def feed(self, part: bytes) -> None:
        """More of it came."""
        self._parts.append(part)
        self.num_waiting += len(part)
        if self._waiter is not None:
            self._wake(self._waiter)

    def finish(self) -> None:
        """All of it came."""
        self.is_complete = True
        if self._waiter is not None:
            self._wake(self._waiter)

    def break_off(self, error: RosebedError) -> None:
        """No more will come; `error` says why."""
        self._error = error
        if self._waiter is not None:
            self._wake(self._waiter)

    def take(self) -> bytes:
        """What came and was not taken yet; empty if nothing."""
        parts, self._parts = self._parts, []
        self.num_waiting = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def next_part(self) -> bytes:
        """The next bytes, at the end none. Raises what broke it off."""
        while not self.num_waiting and not self.is_complete:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            if self._on_wanted is not None:
                self._on_wanted()
            await self._waiter
        return self.take()

    def _wake(self, waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_result(None)
        self._waiter = None
