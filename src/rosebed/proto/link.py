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


def frame(message: StreamRequest | EmbedResponse) -> bytes:
    """`message` as it goes over the link."""
    data = message.SerializeToString()
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Takes what comes apart into messages."""

    def __init__(self, *, max_bytes: int) -> None:
        """`max_bytes` is the size of the largest message."""
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._wanted = _LENGTH.size
        """Bytes with which there is something to take out of the rest, or to learn."""

    def feed(self, data: bytes) -> list[bytes]:
        """The bytes of each message that is complete now, in order.

        InvalidInput for a message over `max_bytes`, after which the connection is of no use.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        messages: list[bytes] = []
        start = 0
        while (end := self._end(data, start)) <= len(data):
            messages.append(data[start + _LENGTH.size : end])
            start = end
        if start < len(data):
            self._rest += memoryview(data)[start:]
            self._wanted = end - start
        return messages

    def _end(self, data: bytes, start: int) -> int:
        """Where the message that begins at `start` ends, as far as can be told."""
        if len(data) - start < _LENGTH.size:
            return start + _LENGTH.size
        (size,) = _LENGTH.unpack_from(data, start)
        if size > self._max_bytes:
            raise InvalidInput(f"a message of {size} bytes, at most {self._max_bytes} are taken", param="message")
        return start + _LENGTH.size + size


async def write_frame(writer: asyncio.StreamWriter, message: StreamRequest | EmbedResponse) -> None:
    """Send `message`, and wait while the other side is slow to read. ConnectionError if it is gone."""
    writer.write(frame(message))
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
