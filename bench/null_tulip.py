"""An inference server that costs next to nothing: it repeats one vector, over the link that a real one has.

What it tells a gateway of itself goes over gRPC. It understands requests of one sequence, and answers those that came
together in one message, as a real server answers a batch.
"""

import asyncio
from typing import Any, cast

import grpc.aio
import numpy as np
import uvloop

from rosebed.core.engine import EngineInfo
from rosebed.core.types import OutputKind
from rosebed.core.version import __version__
from rosebed.proto.codec import info_message, separated
from rosebed.proto.link import FrameReader, link_path
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, InfoRequest, InfoResponse, Output, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipServicer, add_TulipServicer_to_server

MAX_MESSAGE_BYTES = 4 << 20
_REQUEST_ID = b"\x08"
"""Key of `EmbedResponse.request_id`, with which a message begins."""
_ALSO = b"\x4a"
"""Key of `EmbedResponse.also`."""


def serve(info: EngineInfo, address: str) -> None:
    """Be the server that `info` describes, at `address` (unix:PATH), until killed."""
    uvloop.run(_serve(info, address))


async def _serve(info: EngineInfo, address: str) -> None:
    path = link_path(address)
    if path is None:
        raise ValueError(f"{address} is no Unix socket, beside which a link would be")
    answer = _answer(info)
    await asyncio.get_running_loop().create_unix_server(lambda: _Link(answer), path)
    server = grpc.aio.server()
    add_TulipServicer_to_server(_Information(info), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


class _Information(TulipServicer):
    def __init__(self, info: EngineInfo) -> None:
        self._message = info_message(
            info, version=__version__, max_request_sequences=1, max_message_bytes=MAX_MESSAGE_BYTES
        )

    async def Info(self, request: InfoRequest, context: Any) -> InfoResponse:  # noqa: ARG002, N802 - gRPC's signature
        return self._message


class _Link(asyncio.Protocol):
    """One connection to the link."""

    def __init__(self, answer: bytes) -> None:
        """`answer` is all of a response but the id that it begins with."""
        self._answer = answer
        self._frames = FrameReader(max_bytes=MAX_MESSAGE_BYTES)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        first, *others = [
            _REQUEST_ID + _varint(request.embed.request_id) + self._answer
            for message in self._frames.feed(data)
            for request in separated(StreamRequest.FromString(message))
            if request.HasField("embed")
        ] or [b""]
        message = first + b"".join([_ALSO + _varint(len(other)) + other for other in others])
        if message and self._transport is not None:
            self._transport.write(len(message).to_bytes(4, "little") + message)


def _answer(info: EngineInfo) -> bytes:
    dim = info.outputs[OutputKind.DENSE].dim
    vector = np.random.default_rng(0).normal(0, dim**-0.5, dim).astype("<f4")
    output = Output(kind=1, dtype=DTYPE_FLOAT32, dim=dim, rows=1, data=vector.tobytes())  # pyright: ignore[reportArgumentType]
    return EmbedResponse(num_sequences=1, outputs=[output], last=True).SerializeToString()


def _varint(number: int) -> bytes:
    """`number` as protobuf writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
