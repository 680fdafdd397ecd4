"""Hostile requests over real gRPC: each is refused by name, on both calls, and the next request is unharmed."""

import asyncio
import logging
from typing import Any

import grpc
import numpy as np
import pytest
from tulip_live import RECEIVE_ANYTHING, failed_call, live

from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import OutputKind
from rosebed.proto.codec import request_message
from rosebed.proto.rosebed_pb2 import EmbedRequest, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub
from rosebed.testing import FakeEngine, fake_info, fake_sequence

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
    "more outputs than there are": ({"outputs": [1] * 5}, "invalid_input", "outputs"),
    "more spans than a batch holds": (
        {"span_counts": _int32(1, 300), "span_offsets": _int32(*[0, 1] * 301)},
        "invalid_input",
        "sequences[1]",
    ),
    "more spans than the queue holds": (
        {"span_counts": _int32(1, 1000), "span_offsets": _int32(*[0, 1] * 1001)},
        "payload_too_large",
        "",
    ),
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

LIMITS: dict[str, Any] = {"max_request_sequences": 10, "max_queued_tokens": 1500, "max_queued_spans": 1000}


def _hostile(name: str) -> EmbedRequest:
    fields: dict[str, Any] = {"request_id": 1, "token_ids": _int32(1, 2, 3, 4, 5), "lengths": _int32(3, 2)}
    return EmbedRequest(**{**fields, **HOSTILE[name][0]})


async def test_each_is_refused_by_name() -> None:
    async with live(FakeEngine(), **LIMITS) as tulip:
        good = [fake_sequence([1, 2, 3])]
        for name, (_, code, param) in HOSTILE.items():
            status, metadata, details = await failed_call(tulip.stub.Embed(_hostile(name)))
            assert status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), name
            assert (metadata["rosebed-code"], metadata.get("rosebed-param", "")) == (code, param), name
            assert details, name
            tulip.check(good, await tulip.embed(good))


async def test_each_is_refused_by_name_on_a_stream() -> None:
    async with live(FakeEngine(), **LIMITS) as tulip, tulip.stream() as stream:
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


@pytest.mark.parametrize("name", ["Embed", "EmbedStream"])
@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\xff", id="a broken tag"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="a length beyond the end"),
        pytest.param(b"\x62\x02\xff\xff\x0a\xff", id="text that is not UTF-8"),
        pytest.param(bytes(100), id="zeros"),
        pytest.param(b"\x1a\x00" * 5_500_000, id="millions of parts"),
    ],
)
async def test_bytes_that_are_no_message(name: str, payload: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with live(FakeEngine(), max_message_bytes=64 << 20) as tulip:
        channel: Any = tulip.channel
        make = channel.unary_unary if name == "Embed" else channel.stream_stream
        call = make(f"/rosebed.v1.Tulip/{name}", request_serializer=bytes, response_deserializer=bytes)
        ended = call(payload) if name == "Embed" else call(iter([payload])).read()
        status, metadata, _ = await failed_call(ended)
        assert (status, metadata["rosebed-code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_input")
        good = [fake_sequence([1, 2, 3])]
        tulip.check(good, await tulip.embed(good))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_client_text_is_not_repeated_whole() -> None:
    async with live(FakeEngine()) as tulip:
        message = request_message([fake_sequence([1])], request_id=1, fingerprint="é" * 500_000)
        _, _, details = await failed_call(tulip.stub.Embed(message))
        assert len(details) < 300
        assert "(500000 characters)" in details


async def _write(call: Any, message: StreamRequest, *, times: int) -> None:
    for _ in range(times):
        await call.write(message)


async def test_a_client_that_reads_no_refusal_is_read_no_more() -> None:
    async with live(FakeEngine(), max_unsent_bytes=1 << 20) as tulip:
        call: Any = tulip.channel.stream_stream(
            "/rosebed.v1.Tulip/EmbedStream", request_serializer=StreamRequest.SerializeToString
        )()
        bad = StreamRequest(embed=EmbedRequest(request_id=1, lane=7), also=[StreamRequest()] * 8000)  # pyright: ignore[reportArgumentType]
        # 2.4 million refusals; flow control lets a few messages wait in buffers.
        done, _ = await asyncio.wait([asyncio.ensure_future(_write(call, bad, times=300))], timeout=2)
        assert not done
        call.cancel()
        good = [fake_sequence([1, 2, 3])]
        tulip.check(good, await tulip.embed(good))


async def test_a_client_that_leaves_amid_its_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    dense = OutputSpec(rows_per=RowsPer.SPAN, dim=4096)
    async with live(FakeEngine(fake_info(outputs={OutputKind.DENSE: dense}))) as tulip:
        for number in range(20):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{tulip.server.port}", RECEIVE_ANYTHING) as channel:
                call: Any = TulipStub(channel).EmbedStream()
                for request_id in range(20):
                    request = request_message([fake_sequence([request_id])] * 60, request_id=request_id)
                    await call.write(StreamRequest(embed=request))
                if number % 2:
                    await call.read()
        good = [fake_sequence([1, 2, 3])]
        tulip.check(good, await tulip.embed(good))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
