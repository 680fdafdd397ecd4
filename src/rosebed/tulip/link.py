"""The link's server side: `EmbedStream` for gateways on the same machine. Knows no gRPC and no HTTP/2."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from rosebed.core.errors import InvalidInput
from rosebed.proto.codec import stream_request
from rosebed.proto.link import read_frame, write_frame
from rosebed.proto.rosebed_pb2 import StreamRequest
from rosebed.tulip.session import StreamSession, Write

_log = logging.getLogger(__name__)

OpenSession = Callable[[Write], StreamSession]
"""Makes the session of a new connection, given how to write to it."""


class LinkServer:
    """Accepts connections, each a stream of its own. Belongs to one event loop."""

    def __init__(self, path: str, open_session: OpenSession, *, max_message_bytes: int) -> None:
        self._path = path
        self._open_session = open_session
        self._max_message_bytes = max_message_bytes
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Where that fails there is no link, and gateways stay with gRPC."""
        try:
            self._server = await asyncio.start_unix_server(self._accept, self._path)
        except OSError as error:
            _log.warning("no link at %s: %s", self._path, error)

    async def stop(self, grace_s: float) -> None:
        """Take no new connection, let those there are end for `grace_s` seconds, then end them."""
        if self._server is None:
            return
        self._server.close()
        self._remove()
        if self._connections:
            _, late = await asyncio.wait(self._connections, timeout=grace_s)
            for connection in late:
                connection.cancel()

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            Path(self._path).unlink()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = self._open_session(partial(write_frame, writer))
        try:
            await session.run(self._messages(reader, hang_up=_current_task().cancel))
        except (InvalidInput, ConnectionError) as error:
            _log.warning("a connection to the link ended: %s", error)
        finally:
            writer.close()

    async def _messages(
        self, reader: asyncio.StreamReader, *, hang_up: Callable[[], object]
    ) -> AsyncIterator[StreamRequest | InvalidInput]:
        while (data := await read_frame(reader, max_bytes=self._max_message_bytes)) is not None:
            yield stream_request(data)
        hang_up()  # nobody reads what is still to be answered


def _current_task() -> "asyncio.Task[None]":
    task = asyncio.current_task()
    assert task is not None
    return task
