"""One bidirectional stream to a replica: many requests at once, told apart by id, written by one writer."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from collections.abc import Sequence as AnySequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Protocol

import grpc

from rosebed.core.errors import RosebedError, Unavailable
from rosebed.core.outputs import OutputSpecs
from rosebed.core.types import Lane, Sequence
from rosebed.proto.codec import Assembler, ReplyRows, joined, request_message, separated
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest


class EmbedCall(Protocol):
    """What carries a stream: a gRPC call, or a link in its form."""

    async def write(self, message: StreamRequest, /) -> None: ...

    async def read(self) -> object:
        """An EmbedResponse, or anything else at the end."""
        ...


MAX_JOINED_BYTES = 64 << 10
"""Waiting messages share one write up to this size; joining copies, which larger ones do not repay."""
_JOINT_BYTES = 8
"""Most that a message takes beside its own bytes where another carries it."""


class ReplicaLost(Unavailable):
    """The stream broke while a request was in flight; another replica may be asked."""


class Stream:
    """Requests to one replica in one lane. Lives as long as its call, and belongs to one event loop."""

    def __init__(
        self, call: EmbedCall, lane: Lane, specs: OutputSpecs, *, max_message_bytes: int = MAX_JOINED_BYTES
    ) -> None:
        """`max_message_bytes` is the largest message that the replica takes."""
        self._call = call
        self._lane = lane
        self._specs = specs
        self._max_joined_bytes = min(max_message_bytes, MAX_JOINED_BYTES)
        self._loop = asyncio.get_running_loop()
        self._ids = count(1)
        self._pending: dict[int, tuple[Assembler, asyncio.Future[ReplyRows]]] = {}
        self._waiting: deque[StreamRequest] = deque()
        self._wake = asyncio.Event()
        self._broken = False

    async def request(self, sequences: AnySequence[Sequence]) -> ReplyRows:
        """The rows of `sequences`; cancelling this cancels the replica's work. Raises its refusal, or ReplicaLost."""
        if self._broken:
            raise ReplicaLost("the inference server is gone")
        request_id = next(self._ids)
        message = StreamRequest(embed=request_message(sequences, request_id=request_id, lane=self._lane))
        future: asyncio.Future[ReplyRows] = self._loop.create_future()
        self._pending[request_id] = Assembler(sequences, self._specs), future
        self._send(message)
        try:
            return await future
        except asyncio.CancelledError:
            if self._pending.pop(request_id, None) is not None:
                self._send(StreamRequest(cancel=request_id))
            raise

    def _send(self, message: StreamRequest) -> None:
        self._waiting.append(message)
        self._wake.set()

    async def run(self) -> None:
        """Write and read until the call ends, then fail what is in flight. Raises grpc.aio.AioRpcError if it broke."""
        writer = asyncio.create_task(self._write())
        try:
            await self._read()
        finally:
            writer.cancel()
            self._break()

    async def _write(self) -> None:
        with suppress(
            grpc.aio.AioRpcError, asyncio.InvalidStateError, ConnectionError
        ):  # the call is over: reading says why
            while True:
                while self._waiting:
                    await self._call.write(joined(_take_some(self._waiting, self._max_joined_bytes)))
                self._wake.clear()
                await self._wake.wait()

    async def _read(self) -> None:
        while isinstance(message := await self._call.read(), EmbedResponse):
            for response in separated(message):
                self._receive(response)

    def _receive(self, response: EmbedResponse) -> None:
        assembler, future = self._pending.get(response.request_id, (None, None))
        # NOTE: a cancelled request's future is done at once, its task removes the request only when it next runs.
        if assembler is None or future is None or future.done():
            return
        try:
            assembler.add(response)
            if not assembler.done:
                return
            rows = assembler.result()
        except RosebedError as error:
            future.set_exception(error)
        else:
            future.set_result(rows)
        del self._pending[response.request_id]

    def _break(self) -> None:
        self._broken = True
        for _, future in self._pending.values():
            if not future.done():
                future.set_exception(ReplicaLost("the inference server went away during the request"))
        self._pending.clear()


def _take_some(waiting: deque[StreamRequest], max_bytes: int) -> list[StreamRequest]:
    """The first, and what follows it as long as all fit into `max_bytes` together."""
    taken = [waiting.popleft()]
    num_bytes = taken[0].ByteSize()
    while waiting and (num_bytes := num_bytes + waiting[0].ByteSize() + _JOINT_BYTES) <= max_bytes:
        taken.append(waiting.popleft())
    return taken


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None]]:
    """Run `work` in a task of its own, ended with the context."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
