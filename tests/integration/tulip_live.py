"""A live Tulip server over a `FakeEngine`, and a small client that speaks the wire by hand."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import numpy as np

from rosebed.core.types import Sequence
from rosebed.proto.codec import Assembler, ReplyRows, joined, request_message, separated
from rosebed.proto.rosebed_pb2 import EmbedRequest, EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub
from rosebed.testing import FakeEngine, expected_rows
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

RECEIVE_ANYTHING = [("grpc.max_receive_message_length", -1)]


class Live:
    """A server that is up, and a channel to it."""

    def __init__(self, engine: FakeEngine, server: TulipServer, channel: grpc.aio.Channel) -> None:
        self.engine = engine
        self.server = server
        self.channel = channel
        self.stub: Any = TulipStub(channel)

    async def embed(self, sequences: list[Sequence], **options: Any) -> ReplyRows:
        """One unary call."""
        response = await self.stub.Embed(request_message(sequences, request_id=1, **options))
        assembler = Assembler(sequences, self.engine.info.outputs)
        assembler.add(response)
        return assembler.result()

    def check(self, sequences: list[Sequence], reply: ReplyRows) -> None:
        """The answer is bit for bit what the engine computes."""
        assert not reply.errors
        for index, sequence in enumerate(sequences):
            for kind in sequence.outputs:
                width = reply.outputs[kind].shape[1]
                expected = expected_rows(sequence, kind, self.engine.info)[:, :width]
                assert np.array_equal(reply.rows(kind, index), expected)

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator["Stream"]:
        """An open `EmbedStream`, cancelled at the end if it is still open."""
        stream = Stream(self)
        try:
            yield stream
        finally:
            stream.call.cancel()
            await asyncio.gather(stream.reader, return_exceptions=True)


class Stream:
    """The client's side of an `EmbedStream`."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.call: Any = live.stub.EmbedStream()
        self.responses: dict[int, list[EmbedResponse]] = {}
        self.order: list[int] = []
        """request_id of every response, as they came."""
        self._writing = asyncio.Lock()
        self._done: dict[int, asyncio.Future[None]] = {}
        self.reader = asyncio.ensure_future(self._read())

    async def send(self, *messages: EmbedRequest | int) -> None:
        """Write requests, or the ids to cancel, as one message."""
        parts = [StreamRequest(cancel=m) if isinstance(m, int) else StreamRequest(embed=m) for m in messages]
        async with self._writing:
            await self.call.write(joined(parts))

    async def answer(self, request_id: int) -> list[EmbedResponse]:
        """All responses to one request, once the last has come."""
        await asyncio.wait_for(self._future(request_id), 20)
        return self.responses[request_id]

    async def embed(self, sequences: list[Sequence], request_id: int, **options: Any) -> ReplyRows:
        """One request and its answer."""
        await self.send(request_message(sequences, request_id=request_id, **options))
        assembler = Assembler(sequences, self._live.engine.info.outputs)
        for response in await self.answer(request_id):
            assembler.add(response)
        return assembler.result()

    def _future(self, request_id: int) -> "asyncio.Future[None]":
        return self._done.setdefault(request_id, asyncio.get_running_loop().create_future())

    async def _read(self) -> None:
        async for message in self.call:
            for response in separated(message):
                self.order.append(response.request_id)
                self.responses.setdefault(response.request_id, []).append(response)
                if response.last:
                    self._future(response.request_id).set_result(None)


@asynccontextmanager
async def live(
    engine: FakeEngine, *, on_fatal: Callable[[str], None] | None = None, **settings: Any
) -> AsyncGenerator[Live]:
    """A server for `engine` on a free port, ready, with `settings` of its config."""

    def fail(reason: str) -> None:
        raise AssertionError(reason)

    server = TulipServer(engine, TulipConfig(port=0, **settings), on_fatal=on_fatal or fail)
    try:
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=RECEIVE_ANYTHING) as channel:
            yield Live(engine, server, channel)
    finally:
        await server.stop(0)
        engine.close()


async def eventually(condition: Callable[[], bool], *, within_s: float = 10) -> None:
    """Return once `condition` holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        assert loop.time() < deadline, "it never came to hold"
        await asyncio.sleep(0.005)


async def failed_call(call: Awaitable[Any]) -> tuple[grpc.StatusCode, dict[str, str], str]:
    """Status, trailing metadata and details of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        metadata = {str(key): str(value) for key, value in error.trailing_metadata() or ()}
        return error.code(), metadata, error.details() or ""
    raise AssertionError("the call succeeded")
