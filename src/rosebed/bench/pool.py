"""Connections for an open loop: as many as are in use at once, opened when needed and used again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from rosebed.bench.targets.base import Connection

Connect = Callable[[], Awaitable[Connection]]


class ConnectionPool:
    """At most `limit` connections; who finds none free waits in line."""

    def __init__(self, connect: Connect, *, limit: int) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection of one's own. One whose use raised is closed, and not used again."""
        async with self._free:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            self._idle.append(connection)

    async def fill(self, number: int) -> None:
        """Open connections until `number` are idle."""
        while len(self._idle) < number:
            self._idle.append(await self._connect())

    async def close(self) -> None:
        """Close the idle ones; none may be in use."""
        while self._idle:
            await self._idle.pop().close()
