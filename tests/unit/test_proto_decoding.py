"""Bytes that are no message, or one of too many: refused by name and in no time."""

import gc
import time

import pytest

from rosebed.core.errors import InvalidInput
from rosebed.proto.codec import embed_request, request_message, stream_request
from rosebed.proto.decoding import MAX_FIELDS, MAX_JOINED, UNCOUNTED_BYTES
from rosebed.proto.rosebed_pb2 import EmbedRequest, StreamRequest
from rosebed.testing import fake_sequence

MILLIONS = 5_500_000


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _complaint(decoded: object) -> str:
    assert isinstance(decoded, InvalidInput)
    return decoded.message


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_field(3, b"") * MILLIONS, id="empty messages"),
        pytest.param(_field(3, _field(3, b"") * MILLIONS), id="empty messages one level down"),
        pytest.param(_field(1, b"") * MILLIONS, id="one request again and again"),
        pytest.param(b"\x10\x01" * MILLIONS, id="cancels that replace each other"),
        pytest.param(_field(1, _field(7, b"\x01" * MILLIONS)), id="outputs, packed"),
        pytest.param(_field(1, b"\x38\x01" * MILLIONS), id="outputs, each its own field"),
        pytest.param(_field(99, b"") * MILLIONS, id="unknown fields"),
    ],
)
def test_millions_of_parts_are_not_even_parsed(data: bytes) -> None:
    gc.collect()  # in the middle of it, one of all that the other tests left would take longer than the limit
    started = time.thread_time()
    message = _complaint(stream_request(data))
    assert time.thread_time() - started < 0.5  # counting to the limit takes 10 ms, parsing took seconds
    assert message == f"a message over {UNCOUNTED_BYTES} bytes may hold at most {MAX_FIELDS} fields"


def test_a_unary_request_is_counted_too() -> None:
    assert "at most" in _complaint(embed_request(_field(7, b"\x01" * MILLIONS)))


def test_as_many_messages_share_one_as_the_protocol_says() -> None:
    message = StreamRequest(cancel=0, also=[StreamRequest(cancel=1)] * (MAX_JOINED - 1))
    assert stream_request(message.SerializeToString()) == message
    message.also.add(cancel=2)
    assert _complaint(stream_request(message.SerializeToString())) == "also holds 8192 messages, at most 8191 are taken"


def test_large_messages_are_read_whole() -> None:
    requests = [request_message([fake_sequence([1] * 500)] * 20, request_id=number) for number in range(20)]
    first, *rest = (StreamRequest(embed=request) for request in requests)
    first.also.extend(rest)
    data = first.SerializeToString()
    assert len(data) > UNCOUNTED_BYTES
    assert stream_request(data) == first
    assert embed_request(requests[0].SerializeToString()) == requests[0]


@pytest.mark.parametrize("size", [0, UNCOUNTED_BYTES + 1])
@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\xff", id="half a tag"),
        pytest.param(b"\xff" * 11, id="a tag without end"),
        pytest.param(b"\x1a\xff\xff\xff\xff\x0f", id="a length beyond the end"),
        pytest.param(b"\x1a\x02\x0a\x05", id="a length beyond the message around it"),
        pytest.param(b"\x0f", id="an unknown wire type"),
        pytest.param(_field(1, _field(12, b"\xff\xff")), id="text that is not UTF-8"),
    ],
)
def test_no_message_at_all(tail: bytes, size: int) -> None:
    padding = _field(99, bytes(size)) if size else b""
    assert _complaint(stream_request(padding + tail)).startswith("not a StreamRequest")
    assert _complaint(embed_request(_field(2, bytes(size)) + b"\xff")).startswith("not an EmbedRequest")


def test_every_field_of_many_values_is_counted() -> None:
    many = {
        (message.DESCRIPTOR.name, field.number)
        for message in (StreamRequest, EmbedRequest)
        for field in message.DESCRIPTOR.fields
        if field.is_repeated or field.message_type
    }
    assert many == {("StreamRequest", 1), ("StreamRequest", 3), ("EmbedRequest", 7)}
