"""All connections of one worker: made, looked at now and then, ended together."""

import asyncio

from rosebed.core.errors import RosebedError, Unavailable
from rosebed.ivy.http1.access_log import AccessLog
from rosebed.ivy.http1.answers import Clock
from rosebed.ivy.http1.connection import Answerer, Connection
from rosebed.ivy.http1.limits import ConnectionLimits

LOOK_S = 1.0
"""How exact connections' times are."""
LOOKED_AT_ONCE = 500
"""Between so many connections, requests get their turn."""


class _LateConnection(Connection):
    """One that comes when the others are ending: all that it is told is why it is refused."""

    def _write_refusal(self, error: RosebedError) -> None:  # noqa: ARG002 - that it is one too many
        super()._write_refusal(Unavailable("this server is shutting down"))


class Connections:
    """Belongs to one event loop. A call makes the protocol of a new connection."""

    def __init__(
        self,
        answerer: Answerer,
        limits: ConnectionLimits | None = None,
        *,
        access_log: AccessLog | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.answerer = answerer
        self.limits = limits or ConnectionLimits()
        self.clock = Clock()
        self.access_log = access_log
        self.is_draining = False
        """Whether connections end when what was asked is answered."""
        self._open: set[Connection] = set()
        self._look_s = look_s
        self._all_closed = asyncio.Event()

    def __call__(self) -> Connection:
        return _LateConnection(self) if self.is_draining else Connection(self)

    def __len__(self) -> int:
        """Open connections."""
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """It is open; False if it is one too many, or too late."""
        if len(self._open) >= self.limits.max_connections or self.is_draining:
            return False
        self._open.add(connection)
        return True

    def discard(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()

    async def run(self) -> None:
        """Hold connections to their times, until cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            for index, connection in enumerate(tuple(self._open), 1):
                connection.look_at(self.loop.time())
                if index % LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def drain(self) -> None:
        """Answer what was asked, then close all connections."""
        self.is_draining = True
        self._all_closed.clear()
        for connection in tuple(self._open):
            connection.drain()
        if self._open:
            await self._all_closed.wait()
        if self.access_log is not None:
            self.access_log.flush()
