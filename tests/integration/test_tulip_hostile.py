"""Hostile requests over real gRPC: each is refused by name, on both calls, and the next request is unharmed."""

from typing import Any

import grpc
import numpy as np
import pytest
from tulip_live import failed_call, live

from rosebed.proto.codec import request_message
from rosebed.proto.rosebed_pb2 import EmbedRequest
from rosebed.testing import FakeEngine, fake_sequence

I32 = 2**31 - 1


def _int32(*values: int) -> bytes:
    return np.array(values, np.int64).astype("<i4").tobytes()


HOSTILE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no sequences": ({"lengths": b"", "token_ids": b""}, "invalid_input", "lengths"),
    "lengths that do not sum": ({"lengths": _int32(3, 3)}, "invalid_input", "lengths"),
    "lengths whose sum overflows": ({"lengths": _int32(*[I32] * 4)}, "invalid_input", "lengths"),
    "an empty sequence": ({"lengths": _int32(5, 0)}, "invalid_input", "sequences[1]"),
    "a negative length": ({"lengths": _int32(7, -2)}, "invalid_input", "sequences[1]"),
    "half an integer": ({"token_ids": b"\1\0\0\0\2"}, "invalid_input", "token_ids"),
    "token id -1": ({"token_ids": _int32(1, 2, 3, 4, -1)}, "invalid_input", "sequences[1]"),
    "token id vocab_size": ({"token_ids": _int32(30_000, 2, 3, 4, 5)}, "invalid_input", "sequences[0]"),
    "token type 2": ({"token_type_ids": _int32(0, 0, 0, 2, 0)}, "invalid_input", "sequences[1]"),
    "token types of another length": ({"token_type_ids": _int32(0)}, "invalid_input", "token_type_ids"),
    "an empty span": (
        {"span_counts": _int32(1, 1), "span_offsets": _int32(0, 3, 1, 1)},
        "invalid_input",
        "sequences[1]",
    ),
    "a span beyond its sequence": (
        {"span_counts": _int32(1, 1), "span_offsets": _int32(0, 4, 0, 1)},
        "invalid_input",
        "sequences[0]",
    ),
    "a span at the edge of int32": (
        {"span_counts": _int32(1, 1), "span_offsets": _int32(0, 3, -I32 - 1, I32)},
        "invalid_input",
        "sequences[1]",
    ),
    "span counts that overflow": (
        {"span_counts": _int32(I32, I32), "span_offsets": _int32(0, 3)},
        "invalid_input",
        "span_counts",
    ),
    "an unknown output": ({"outputs": [42]}, "invalid_input", "outputs"),
    "an output of another model": ({"outputs": [1, 4]}, "wrong_model_kind", "outputs"),
    "no dimensions": ({"dimensions": 0}, "invalid_input", "dimensions"),
    "more dimensions than there are": ({"dimensions": 9}, "invalid_input", "dimensions"),
    "another model's tokens": ({"fingerprint": "other"}, "fingerprint_mismatch", ""),
    "an unknown lane": ({"lane": 7}, "invalid_input", "lane"),
    "a sequence over the limit": (
        {"lengths": _int32(513), "token_ids": _int32(*[1] * 513)},
        "context_length_exceeded",
        "sequences[0]",
    ),
    "too many sequences": (
        {"lengths": _int32(*[1] * 11), "token_ids": _int32(*[1] * 11)},
        "invalid_input",
        "lengths",
    ),
    "more than the queue holds": (
        {"lengths": _int32(*[512] * 3), "token_ids": _int32(*[1] * 1536)},
        "payload_too_large",
        "",
    ),
}


def _hostile(name: str) -> EmbedRequest:
    fields: dict[str, Any] = {"request_id": 1, "token_ids": _int32(1, 2, 3, 4, 5), "lengths": _int32(3, 2)}
    return EmbedRequest(**{**fields, **HOSTILE[name][0]})


async def test_each_is_refused_by_name() -> None:
    async with live(FakeEngine(), max_request_sequences=10, max_queued_tokens=1500) as tulip:
        good = [fake_sequence([1, 2, 3])]
        for name, (_, code, param) in HOSTILE.items():
            status, metadata, details = await failed_call(tulip.stub.Embed(_hostile(name)))
            assert status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), name
            assert (metadata["rosebed-code"], metadata.get("rosebed-param", "")) == (code, param), name
            assert details, name
            tulip.check(good, await tulip.embed(good))


async def test_each_is_refused_by_name_on_a_stream() -> None:
    async with live(FakeEngine(), max_request_sequences=10, max_queued_tokens=1500) as tulip, tulip.stream() as stream:
        good = [fake_sequence([1, 2, 3])]
        for number, (name, (_, code, param)) in enumerate(HOSTILE.items(), start=10):
            message = _hostile(name)
            message.request_id = number
            await stream.send(message, request_message(good, request_id=1000 + number))
            (response,) = await stream.answer(number)
            assert (response.refused.code, response.refused.param) == (code, param), name
            (served,) = await stream.answer(1000 + number)
            assert not served.HasField("refused"), name
            tulip.check(good, await stream.embed(good, 2000 + number))


@pytest.mark.parametrize("timeout_ns", [1, 2**63, 2**64 - 1])
async def test_extreme_timeouts(timeout_ns: int) -> None:
    async with live(FakeEngine()) as tulip:
        good = [fake_sequence([1, 2, 3])]
        if timeout_ns == 1:
            call = tulip.stub.Embed(request_message(good, request_id=1, timeout_ns=1))
            status, _, _ = await failed_call(call)
            assert status is grpc.StatusCode.DEADLINE_EXCEEDED
        else:
            tulip.check(good, await tulip.embed(good, timeout_ns=timeout_ns))


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\xff", id="a broken tag"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="a length beyond the end"),
        pytest.param(bytes(100), id="zeros"),
    ],
)
async def test_bytes_that_are_no_message(payload: bytes) -> None:
    async with live(FakeEngine()) as tulip:
        call = tulip.channel.unary_unary(
            "/rosebed.v1.Tulip/Embed", request_serializer=bytes, response_deserializer=bytes
        )
        status, _, _ = await failed_call(call(payload))
        assert status is not grpc.StatusCode.OK
        good = [fake_sequence([1, 2, 3])]
        tulip.check(good, await tulip.embed(good))
