"""The link's client side, against a transport or a server that the test plays."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from google.protobuf.message import DecodeError

from rosebed.ivy.upstream.link import LinkCall
from rosebed.proto.codec import joined, separated
from rosebed.proto.link import FrameReader, frame
from rosebed.proto.rosebed_pb2 import EmbedRequest, EmbedResponse, StreamRequest


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[StreamRequest] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        (message,) = FrameReader(max_bytes=1 << 20).feed(data)
        self.written.append(StreamRequest.FromString(message))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


def linked(call: LinkCall) -> Transport:
    transport = Transport()
    call.connection_made(cast(asyncio.BaseTransport, transport))
    return transport


def request(request_id: int, num_bytes: int = 4) -> StreamRequest:
    return StreamRequest(embed=EmbedRequest(request_id=request_id, token_ids=bytes(num_bytes)))


def ids(messages: list[StreamRequest]) -> list[list[int]]:
    return [[part.embed.request_id for part in separated(message)] for message in messages]


async def test_what_is_posted_in_one_iteration_shares_a_message() -> None:
    call = LinkCall()
    transport = linked(call)
    for request_id in (1, 2, 3):
        call.post(request(request_id))
    assert transport.written == []
    await asyncio.sleep(0)
    call.post(request(4))
    await asyncio.sleep(0)
    assert ids(transport.written) == [[1, 2, 3], [4]]


async def test_no_message_is_larger_than_the_other_side_takes() -> None:
    call = LinkCall(max_message_bytes=1024)
    transport = linked(call)
    for request_id in range(1, 6):
        call.post(request(request_id, 400))
    await asyncio.sleep(0)
    assert ids(transport.written) == [[1, 2], [3, 4], [5]]


async def test_nothing_is_written_to_a_connection_that_ends() -> None:
    call = LinkCall()
    transport = linked(call)
    call.post(request(1))
    call.close()
    await asyncio.sleep(0)
    call.post(request(2))
    await asyncio.sleep(0)
    assert transport.written == []


async def test_answers_come_apart_in_order_until_the_other_side_hangs_up() -> None:
    call = LinkCall()
    linked(call)
    came: list[int] = []
    run = asyncio.create_task(call.run(lambda response: came.append(response.request_id)))
    await asyncio.sleep(0)
    answers = [EmbedResponse(request_id=request_id) for request_id in (1, 2, 3)]
    data = frame(joined(answers[:2])) + frame(answers[2])
    call.data_received(data[:7])
    call.data_received(data[7:])
    assert came == [1, 2, 3]
    call.connection_lost(ConnectionResetError())
    await asyncio.wait_for(run, 5)


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    call = LinkCall()
    transport = linked(call)
    call.data_received(frame(EmbedResponse(request_id=1)))
    assert transport.is_closed


async def test_what_is_no_message_ends_the_connection_and_is_told(tmp_path: Path) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(b"\x04\0\0\0\xff\xff\xff\xff")

    async with await asyncio.start_unix_server(answer, tmp_path / "link"):
        _, call = await asyncio.get_running_loop().create_unix_connection(LinkCall, str(tmp_path / "link"))
        with pytest.raises(DecodeError):
            await asyncio.wait_for(call.run(lambda _: None), 5)
