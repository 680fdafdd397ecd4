"""What carries a stream's messages: the form of it, and gRPC in that form. Knows no requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import grpc

from rosebed.proto.codec import joined, separated
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest

MAX_JOINED_BYTES = 64 << 10
"""Waiting messages share one write up to this size; joining copies, which larger ones do not repay."""
_JOINT_BYTES = 8
"""Most that a message takes beside its own bytes where another carries it."""

Receive = Callable[[EmbedResponse], None]


class Wire(Protocol):
    """Belongs to one event loop."""

    def post(self, message: StreamRequest) -> None:
        """Send `message` after those before it, soon and without waiting. Where the other side is gone, `run` ends."""
        ...

    async def run(self, receive: Receive) -> None:
        """Hand on what comes, until the other side says no more. Raises what broke the wire."""
        ...


class EmbedCall(Protocol):
    """A bidirectional gRPC call."""

    async def write(self, message: StreamRequest, /) -> None: ...

    async def read(self) -> object:
        """An EmbedResponse, or anything else at the end."""
        ...


class GrpcWire:
    """A gRPC call, written by one task: it takes one message at a time, so that those waiting share the next."""

    def __init__(self, call: EmbedCall, *, max_message_bytes: int = MAX_JOINED_BYTES) -> None:
        """`max_message_bytes` is the largest message that the other side takes."""
        self._call = call
        self._max_joined_bytes = min(max_message_bytes, MAX_JOINED_BYTES)
        self._waiting: deque[StreamRequest] = deque()
        self._wake = asyncio.Event()

    def post(self, message: StreamRequest) -> None:
        self._waiting.append(message)
        self._wake.set()

    async def run(self, receive: Receive) -> None:
        writer = asyncio.create_task(self._write())
        try:
            while isinstance(message := await self._call.read(), EmbedResponse):
                for response in separated(message):
                    receive(response)
        finally:
            writer.cancel()

    async def _write(self) -> None:
        with suppress(
            grpc.aio.AioRpcError, asyncio.InvalidStateError, ConnectionError
        ):  # the call is over: reading says why
            while True:
                while self._waiting:
                    await self._call.write(joined(take_some(self._waiting, self._max_joined_bytes)))
                self._wake.clear()
                await self._wake.wait()


def take_some(waiting: deque[StreamRequest], max_bytes: int) -> list[StreamRequest]:
    """The first, and what follows it as long as all fit into `max_bytes` together."""
    taken = [waiting.popleft()]
    if not waiting:
        return taken
    num_bytes = taken[0].ByteSize()
    while waiting and (num_bytes := num_bytes + waiting[0].ByteSize() + _JOINT_BYTES) <= max_bytes:
        taken.append(waiting.popleft())
    return taken
