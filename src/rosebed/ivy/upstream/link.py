"""The link's client side: stands in for a gRPC call where the replica is on the same machine and offers it."""

import asyncio
import logging
from collections import deque
from contextlib import AsyncExitStack
from typing import cast

from rosebed.core.errors import InvalidInput
from rosebed.ivy.upstream.stream import EmbedCall
from rosebed.proto.link import FrameReader, frame, link_path
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

_MAX_RESPONSE_BYTES = (1 << 31) - 1
"""Protobuf's own limit: answers come from our own server, in chunks."""

_log = logging.getLogger(__name__)


class LinkCall(asyncio.Protocol):
    """One connection, in the form of a bidirectional gRPC call."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(max_bytes=_MAX_RESPONSE_BYTES)
        self._came: deque[EmbedResponse] = deque()
        self._is_over = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        """Waits while the other side is slow to read."""

    # What a stream calls.

    async def write(self, message: StreamRequest) -> None:
        """Send `message`, and wait while the other side is slow to read. ConnectionError if it is gone."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the replica has hung up")
        self._transport.write(frame(message))
        if self._writer is not None:
            await self._writer

    async def read(self) -> EmbedResponse | None:
        """The next message; None when the replica has hung up."""
        while not self._came:
            if self._is_over:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._came.popleft()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        try:
            self._came.extend(map(EmbedResponse.FromString, self._frames.feed(data)))
        except InvalidInput:
            self.close()
        self._reader = _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._is_over = True
        self._reader = _wake(self._reader)
        self._writer = _wake(self._writer)

    def pause_writing(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        self._writer = _wake(self._writer)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


async def open_call(target: str, stub: TulipStub, stack: AsyncExitStack) -> EmbedCall:
    """A stream to the replica at `target`: its link, or else a gRPC call on `stub`. Ends with `stack`."""
    path = link_path(target)
    if path is None:
        return stub.EmbedStream()
    try:
        _, call = await asyncio.get_running_loop().create_unix_connection(LinkCall, path)
    except OSError as error:
        _log.info("%s has no link, gRPC will do: %s", target, error)
        return stub.EmbedStream()
    stack.callback(call.close)
    return call
