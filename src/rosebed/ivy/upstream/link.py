"""The link's client side: stands in for a gRPC call where the replica is on the same machine and offers it."""

import asyncio
import logging
from contextlib import AsyncExitStack

from rosebed.ivy.upstream.stream import EmbedCall
from rosebed.proto.link import link_path, read_frame, write_frame
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

_MAX_RESPONSE_BYTES = (1 << 31) - 1
"""Protobuf's own limit: answers come from our own server, in chunks."""

_log = logging.getLogger(__name__)


class LinkCall:
    """One connection, in the form of a bidirectional gRPC call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, message: StreamRequest) -> None:
        await write_frame(self._writer, message)

    async def read(self) -> EmbedResponse | None:
        """The next message; None when the replica has hung up."""
        data = await read_frame(self._reader, max_bytes=_MAX_RESPONSE_BYTES)
        return None if data is None else EmbedResponse.FromString(data)

    def close(self) -> None:
        self._writer.close()


async def open_call(target: str, stub: TulipStub, stack: AsyncExitStack) -> EmbedCall:
    """A stream to the replica at `target`: its link, or else a gRPC call on `stub`. Ends with `stack`."""
    path = link_path(target)
    if path is None:
        return stub.EmbedStream()
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        _log.info("%s has no link, gRPC will do: %s", target, error)
        return stub.EmbedStream()
    call = LinkCall(reader, writer)
    stack.callback(call.close)
    return call
