"""The link: what `EmbedStream` carries, on a Unix socket without HTTP/2, for processes of one machine.

Each message is preceded by its length in four bytes, little-endian. grpc.aio hands a message from thread to thread on
either side, which takes 0.2 ms of a round trip on a host with many cores; this does not leave the event loop. Who
listens at `unix:PATH` listens at the link beside it; nothing but requests and answers goes over it.
"""

import asyncio
from struct import Struct

from rosebed.core.errors import InvalidInput
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest

_LENGTH = Struct("<I")
_UNIX = "unix:"


def link_path(address: str) -> str | None:
    """The socket file of the link beside the server at `address`; None unless that is a Unix socket."""
    return address.removeprefix(_UNIX) + ".link" if address.startswith(_UNIX) else None


async def write_frame(writer: asyncio.StreamWriter, message: StreamRequest | EmbedResponse) -> None:
    """Send `message`, and wait while the other side is slow to read. ConnectionError if it is gone."""
    data = message.SerializeToString()
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


async def read_frame(reader: asyncio.StreamReader, *, max_bytes: int) -> bytes | None:
    """The next message's bytes; None if the other side has hung up.

    InvalidInput for a message over `max_bytes`, after which the connection is of no use.
    """
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if size > max_bytes:
            raise InvalidInput(f"a message of {size} bytes, at most {max_bytes} are taken", param="message")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
