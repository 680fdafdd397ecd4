"""Bytes from strangers to messages. Never raises: gRPC would answer UNKNOWN, and log a traceback each time.

A message of a few megabytes can hold millions of empty ones, which take seconds and gigabytes to make. So the fields of
a large message are counted before it is parsed, and no further than to the limit.
"""

from enum import Enum, auto

from google.protobuf.message import DecodeError

from rosebed.core.errors import InvalidInput
from rosebed.proto.rosebed_pb2 import EmbedRequest, StreamRequest

MAX_JOINED = 8192
"""Messages in one, the first included."""
MAX_FIELDS = 16_384
"""Fields of a message over `UNCOUNTED_BYTES`: with those of the messages inside it, and each byte of a list."""
UNCOUNTED_BYTES = 64 << 10
"""A message of up to this size cannot hold enough to matter."""


class _Kind(Enum):
    """What the bytes of a length-delimited field are."""

    STREAM_REQUEST = auto()
    EMBED_REQUEST = auto()
    LIST = auto()
    OTHER = auto()


_INNER = {
    (_Kind.STREAM_REQUEST, StreamRequest.EMBED_FIELD_NUMBER): _Kind.EMBED_REQUEST,
    (_Kind.STREAM_REQUEST, StreamRequest.ALSO_FIELD_NUMBER): _Kind.STREAM_REQUEST,
    (_Kind.EMBED_REQUEST, EmbedRequest.OUTPUTS_FIELD_NUMBER): _Kind.LIST,
}
"""Fields, by message and number, that hold more than one value."""

_LONGEST_VARINT = 10


def embed_request(data: bytes) -> EmbedRequest | InvalidInput:
    """The request, or why there is none."""
    try:
        _check_fields(data, _Kind.EMBED_REQUEST)
        return EmbedRequest.FromString(data)
    except (DecodeError, IndexError) as error:
        return InvalidInput(f"not an EmbedRequest: {error}", param="message")
    except InvalidInput as error:
        return error


def stream_request(data: bytes) -> StreamRequest | InvalidInput:
    """The message, which holds at most `MAX_JOINED`, or why there is none."""
    try:
        _check_fields(data, _Kind.STREAM_REQUEST)
        message = StreamRequest.FromString(data)
    except (DecodeError, IndexError) as error:
        return InvalidInput(f"not a StreamRequest: {error}", param="message")
    except InvalidInput as error:
        return error
    if len(message.also) >= MAX_JOINED:
        return InvalidInput(
            f"also holds {len(message.also)} messages, at most {MAX_JOINED - 1} are taken", param="also"
        )
    return message


def _check_fields(data: bytes, kind: _Kind) -> None:
    """InvalidInput if `data` is large and of too many fields; IndexError if they do not end where they should."""
    if len(data) <= UNCOUNTED_BYTES:
        return
    waiting = [(0, len(data), kind)]
    num_fields = 0
    while waiting:
        at, stop, kind = waiting.pop()
        while at < stop:
            number, start, at = _next_field(data, at)
            if at > stop:
                raise IndexError("a field goes beyond the end")
            inner = _INNER.get((kind, number), _Kind.OTHER)
            num_fields += max(1, at - start) if inner is _Kind.LIST else 1
            if num_fields > MAX_FIELDS:
                raise InvalidInput(
                    f"a message over {UNCOUNTED_BYTES} bytes may hold at most {MAX_FIELDS} fields", param="message"
                )
            if inner in (_Kind.STREAM_REQUEST, _Kind.EMBED_REQUEST):
                waiting.append((start, at, inner))


def _next_field(data: bytes, at: int) -> tuple[int, int, int]:
    """Number of the field at `at`, where its value starts, and where that ends."""
    tag, at = _varint(data, at)
    match tag & 7:
        case 0:  # varint
            return tag >> 3, at, _varint(data, at)[1]
        case 1:  # fixed64
            return tag >> 3, at, at + 8
        case 2:  # length-delimited
            size, at = _varint(data, at)
            return tag >> 3, at, at + size
        case 5:  # fixed32
            return tag >> 3, at, at + 4
        case wire_type:
            raise IndexError(f"wire type {wire_type} is not of this protocol")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError("a number does not end")
