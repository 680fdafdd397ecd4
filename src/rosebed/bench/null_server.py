"""A server that does nothing but repeat one answer: what a client measures against it is the client and the wire."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, Self, cast

import grpc.aio

from rosebed.bench.event_loop import new_event_loop
from rosebed.bench.targets.base import Canned
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipServicer, add_TulipServicer_to_server

_HOST = "127.0.0.1"
GRACE_S = 1.0
"""For the client to hang up; without any, gRPC writes complaints to its stderr."""


class NullServer:
    """Serves while its context lasts, on an event loop in a thread of its own.

    >>> with NullServer(canned) as server:
    ...     connection = await target.connect(server.address)
    """

    def __init__(self, canned: Canned) -> None:
        self._canned = canned
        self._loop = new_event_loop()
        self._stopped = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="null-server", daemon=True)
        self.address = ""
        """HOST:PORT."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        serve = {"http": self._serve_http, "grpc": self._serve_grpc}[self._canned.wire]
        self._loop.run_until_complete(serve())

    async def _until_stopped(self, port: int) -> None:
        self.address = f"{_HOST}:{port}"
        self._started.set()
        await self._stopped.wait()

    async def _serve_http(self) -> None:
        (answer,) = self._canned.messages
        server = await asyncio.get_running_loop().create_server(lambda: _HttpRepeater(answer), _HOST, 0)
        await self._until_stopped(server.sockets[0].getsockname()[1])
        server.close()

    async def _serve_grpc(self) -> None:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        add_TulipServicer_to_server(_GrpcRepeater(self._canned.messages), server)
        port = server.add_insecure_port(f"{_HOST}:0")
        await server.start()
        await self._until_stopped(port)
        await server.stop(GRACE_S)


class _HttpRepeater(asyncio.Protocol):
    """Answers when a request's head and as many bytes as it announces have come; requests do not overlap."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._received += data
            head, end, body = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._missing = int(length or 0) - len(body)
            self._received = b""
        if not self._missing and self._transport is not None:
            self._transport.write(self._answer)


class _GrpcRepeater(TulipServicer):
    def __init__(self, messages: tuple[bytes, ...]) -> None:
        self._responses = [EmbedResponse.FromString(message) for message in messages]

    async def EmbedStream(self, request_iterator: AsyncIterator[StreamRequest], context: Any) -> None:  # noqa: N802
        async for _ in request_iterator:
            for response in self._responses:
                await context.write(response)
