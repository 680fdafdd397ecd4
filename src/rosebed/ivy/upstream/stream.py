"""One bidirectional stream to a replica: many requests at once, told apart by id."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from collections.abc import Sequence as AnySequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from rosebed.core.errors import RosebedError, Unavailable
from rosebed.core.outputs import OutputSpecs
from rosebed.core.types import Lane, Sequence
from rosebed.ivy.upstream.wire import Wire
from rosebed.proto.codec import Assembler, ReplyRows, request_message
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest


class ReplicaLost(Unavailable):
    """The stream broke while a request was in flight; another replica may be asked."""


class Stream:
    """Requests to one replica in one lane. Lives as long as its call, and belongs to one event loop."""

    def __init__(self, wire: Wire, lane: Lane, specs: OutputSpecs) -> None:
        self._wire = wire
        self._lane = lane
        self._specs = specs
        self._loop = asyncio.get_running_loop()
        self._ids = count(1)
        self._pending: dict[int, tuple[Assembler, asyncio.Future[ReplyRows]]] = {}
        self._broken = False

    async def request(self, sequences: AnySequence[Sequence]) -> ReplyRows:
        """The rows of `sequences`; cancelling this cancels the replica's work. Raises its refusal, or ReplicaLost."""
        if self._broken:
            raise ReplicaLost("the inference server is gone")
        request_id = next(self._ids)
        message = StreamRequest(embed=request_message(sequences, request_id=request_id, lane=self._lane))
        future: asyncio.Future[ReplyRows] = self._loop.create_future()
        self._pending[request_id] = Assembler(sequences, self._specs), future
        self._wire.post(message)
        try:
            return await future
        except asyncio.CancelledError:
            if self._pending.pop(request_id, None) is not None:
                self._wire.post(StreamRequest(cancel=request_id))
            raise

    async def run(self) -> None:
        """Read until the call ends, then fail what is in flight. Raises what broke it, e.g. grpc.aio.AioRpcError."""
        try:
            await self._wire.run(self._receive)
        finally:
            self._break()

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


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None]]:
    """Run `work` in a task of its own, ended with the context."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
