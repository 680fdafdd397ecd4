"""What the bodies of requests may cost a worker while they are on their way: bytes, time, connections."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from rosebed.core.errors import BodyTimeout, Overloaded, PayloadTooLarge
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.packing import Unpacker
from rosebed.ivy.workload import Workload

MAX_OPEN_BODIES = 8192
"""Bodies that may be on their way at once: half of a worker's connections, so that the others still get answers."""

SLOWEST_BYTES_PER_S = 4096
"""A body that comes more slowly in the long run is taken for one that stalls."""

MAX_INLINE_BYTES = 1 << 16
"""More than this is unpacked off the event loop."""


class BodyIntake:
    """The bodies that one worker is reading."""

    def __init__(
        self, *, max_bytes: int, timeout_s: float, workload: Workload, max_open: int = MAX_OPEN_BODIES
    ) -> None:
        self.max_bytes = max_bytes
        """Largest body, packed or not."""
        self._timeout_s = timeout_s
        self._workload = workload
        self._max_open = max_open
        self._num_open = 0

    async def read(self, body: Body) -> bytes:
        """All of `body`. PayloadTooLarge, BodyTimeout, Overloaded, or what broke it off."""
        if body.announced > self.max_bytes:
            raise self._too_large()
        if not body.is_complete:
            with self._open():
                return await self._read_parts(body)
        data = body.take()
        if len(data) > self.max_bytes:
            raise self._too_large()
        return data

    async def unpack(self, packed: bytes) -> bytes:
        """A body that was packed with gzip. PayloadTooLarge as soon as it turns out to be; InvalidInput if it is none.

        What takes long is done in a thread.
        """
        unpacker = Unpacker(packed)
        data = unpacker.read(min(MAX_INLINE_BYTES, self.max_bytes + 1))
        if not unpacker.is_done:
            data += await self._workload.run(self.max_bytes, partial(unpacker.read, self.max_bytes + 1 - len(data)))
        if len(data) > self.max_bytes:
            raise self._too_large(", unpacked,")
        return data

    @contextmanager
    def _open(self) -> Generator[None]:
        """While one more body is read. Overloaded if too many are."""
        if self._num_open >= self._max_open:
            raise Overloaded(f"{self._max_open} bodies are on their way already")
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1

    async def _read_parts(self, body: Body) -> bytes:
        parts: list[bytes] = []
        num_bytes = 0
        since_s = asyncio.get_running_loop().time()
        while part := await self._next_part(body, since_s, num_bytes):
            num_bytes += len(part)
            if num_bytes > self.max_bytes:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    async def _next_part(self, body: Body, since_s: float, num_bytes: int) -> bytes:
        """The next bytes of a body that began to come at `since_s` of the loop's clock, `num_bytes` so far."""
        try:
            async with asyncio.timeout_at(since_s + self._timeout_s + num_bytes / SLOWEST_BYTES_PER_S):
                return await body.next_part()
        except TimeoutError:
            raise BodyTimeout(
                f"{num_bytes} bytes of the body came in {asyncio.get_running_loop().time() - since_s:.0f} s "
                f"(--body-timeout-s)"
            ) from None

    def _too_large(self, when: str = "") -> PayloadTooLarge:
        return PayloadTooLarge(f"the body{when} is over the limit of {self.max_bytes} bytes (--max-body-bytes)")
