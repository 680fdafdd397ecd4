"""The link's client side: stands in for a gRPC call where the replica is on the same machine and offers it."""

import asyncio
import logging
from collections import deque
from contextlib import AsyncExitStack
from functools import partial
from typing import cast

from rosebed.core.errors import InvalidInput
from rosebed.ivy.upstream.wire import MAX_JOINED_BYTES, GrpcWire, Receive, Wire, take_some
from rosebed.proto.codec import joined, separated
from rosebed.proto.link import FrameReader, frame, link_path
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

_MAX_RESPONSE_BYTES = (1 << 31) - 1
"""Protobuf's own limit: answers come from our own server, in chunks."""

_log = logging.getLogger(__name__)


class LinkCall(asyncio.Protocol):
    """One connection, as a `Wire`. Nothing comes before it is asked for, so that `run` may begin late."""

    def __init__(self, *, max_message_bytes: int = MAX_JOINED_BYTES) -> None:
        """`max_message_bytes` is the largest message that the other side takes."""
        self._max_joined_bytes = min(max_message_bytes, MAX_JOINED_BYTES)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[StreamRequest] = deque()
        """What was posted in this iteration of the loop; in the next, it goes out together."""
        self._frames = FrameReader(max_bytes=_MAX_RESPONSE_BYTES)
        self._receive: Receive | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()

    # What a stream calls.

    def post(self, message: StreamRequest) -> None:
        if not self._waiting:
            self._loop.call_soon(self._write)
        self._waiting.append(message)

    def _write(self) -> None:
        # NOTE: uvloop makes a system call of each write, and the transport keeps what a slow reader leaves.
        while self._waiting:
            message = joined(take_some(self._waiting, self._max_joined_bytes))
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(frame(message))

    async def run(self, receive: Receive) -> None:
        self._receive = receive
        await self._over

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        receive = self._receive
        if receive is None:
            self.close()  # it answers what nobody asked
            return
        try:
            messages = self._frames.feed(data)
        except InvalidInput:
            self.close()
            return
        for message in map(EmbedResponse.FromString, messages):
            for response in separated(message):
                receive(response)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._over.done():
            return
        if exc is None or isinstance(exc, OSError):
            self._over.set_result(None)  # it has hung up, or is gone
        else:
            self._over.set_exception(exc)


async def open_call(
    target: str, stub: TulipStub, stack: AsyncExitStack, *, max_message_bytes: int = MAX_JOINED_BYTES
) -> Wire:
    """A wire to the replica at `target`, which takes messages up to `max_message_bytes`: its link, or else a gRPC call
    on `stub`. Ends with `stack`."""
    path = link_path(target)
    if path is None:
        return GrpcWire(stub.EmbedStream(), max_message_bytes=max_message_bytes)
    try:
        make_call = partial(LinkCall, max_message_bytes=max_message_bytes)
        _, call = await asyncio.get_running_loop().create_unix_connection(make_call, path)
    except OSError as error:
        _log.info("%s has no link, gRPC will do: %s", target, error)
        return GrpcWire(stub.EmbedStream(), max_message_bytes=max_message_bytes)
    stack.callback(call.close)
    return call
