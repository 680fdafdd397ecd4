"""One stream to a replica, against a call that the test answers by hand."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import pytest
from grpc._cython import cygrpc

from rosebed.core.errors import Overloaded, ServerError
from rosebed.core.types import Lane, OutputKind
from rosebed.ivy.upstream.stream import ReplicaLost, Stream, running
from rosebed.ivy.upstream.wire import MAX_JOINED_BYTES, GrpcWire
from rosebed.proto.codec import error_item, separated
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, Output, StreamRequest
from rosebed.testing import fake_info, fake_sequence


class HandCall:
    """A stream whose other end is the test."""

    def __init__(self) -> None:
        self.written: list[StreamRequest] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, message: StreamRequest) -> None:
        await self.writable.wait()
        copy = StreamRequest()
        copy.CopyFrom(message)
        self.written.append(copy)

    async def read(self) -> Any:
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sent(self) -> list[StreamRequest]:
        """Everything written, taken apart."""
        return [part for message in self.written for part in separated(message)]


def answer_to(message: StreamRequest, value: float = 1.0) -> EmbedResponse:
    """One row of that value per sequence."""
    num_sequences = len(message.embed.lengths) // 4
    data = np.full((num_sequences, 8), value, "<f4").tobytes()
    output = Output(kind=1, dtype=DTYPE_FLOAT32, dim=8, rows=num_sequences, data=data)  # pyright: ignore[reportArgumentType]
    return EmbedResponse(request_id=message.embed.request_id, num_sequences=num_sequences, outputs=[output], last=True)


@pytest.fixture
async def call() -> HandCall:
    return HandCall()


@pytest.fixture
async def stream(call: HandCall) -> AsyncGenerator[Stream]:
    stream = Stream(GrpcWire(call), Lane.ONLINE, fake_info().outputs)
    async with running(stream.run()):
        yield stream


def ask(stream: Stream, *ids: int) -> asyncio.Task[Any]:
    return asyncio.create_task(stream.request([fake_sequence(ids)]))


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - some iterations of the loop, no time
            await asyncio.sleep(0)


async def test_answers_are_told_apart_by_id_in_any_order(call: HandCall, stream: Stream) -> None:
    first, second = ask(stream, 1), ask(stream, 2)
    await settled(lambda: len(call.sent()) == 2)
    one, two = call.sent()
    call.answers.put_nowait(answer_to(two, 2.0))
    assert (await second).rows(OutputKind.DENSE, 0)[0, 0] == 2.0
    assert not first.done()
    call.answers.put_nowait(answer_to(one, 1.0))
    assert (await first).rows(OutputKind.DENSE, 0)[0, 0] == 1.0


async def test_requests_that_wait_share_a_write(call: HandCall, stream: Stream) -> None:
    call.writable.clear()
    tasks = [ask(stream, n) for n in range(1, 21)]
    await asyncio.sleep(0.01)
    call.writable.set()
    await settled(lambda: len(call.sent()) == 20)
    assert len(call.written) <= 2
    ids = [np.frombuffer(part.embed.token_ids, "<i4").tolist() for part in call.sent()]
    assert ids == [[n] for n in range(1, 21)]
    first, *others = [answer_to(part) for part in call.sent()]
    first.also.extend(others)
    call.answers.put_nowait(first)
    assert len(await asyncio.gather(*tasks)) == 20


async def test_large_requests_are_written_alone(call: HandCall, stream: Stream) -> None:
    call.writable.clear()
    large = [ask(stream, *[7] * MAX_JOINED_BYTES) for _ in range(3)]
    await asyncio.sleep(0.01)
    call.writable.set()
    await settled(lambda: len(call.sent()) == 3)
    assert [len(message.also) for message in call.written] == [0, 0, 0]
    for task in large:
        task.cancel()


async def test_cancelling_tells_the_replica_and_drops_the_answer(call: HandCall, stream: Stream) -> None:
    task, other = ask(stream, 1), ask(stream, 2)
    await settled(lambda: len(call.sent()) == 2)
    task.cancel()
    await settled(lambda: len(call.sent()) == 3)
    one, two, cancelled = call.sent()
    assert cancelled.cancel == one.embed.request_id
    call.answers.put_nowait(answer_to(one))
    call.answers.put_nowait(answer_to(two))
    assert len((await other).rows(OutputKind.DENSE, 0)) == 1
    assert task.cancelled()


async def test_answer_that_crosses_a_cancellation_harms_nobody(call: HandCall, stream: Stream) -> None:
    task, other = ask(stream, 1), ask(stream, 2)
    await settled(lambda: len(call.sent()) == 2)
    one, two = call.sent()
    call.answers.put_nowait(answer_to(one))  # read before the cancelled task gets its turn
    task.cancel()
    call.answers.put_nowait(answer_to(two))
    assert len((await asyncio.wait_for(other, 5)).rows(OutputKind.DENSE, 0)) == 1
    assert task.cancelled()


async def test_end_that_crosses_a_cancellation_loses_the_others_only(call: HandCall) -> None:
    stream = Stream(GrpcWire(call), Lane.ONLINE, fake_info().outputs)
    async with running(stream.run()) as run:
        task, other = ask(stream, 1), ask(stream, 2)
        await settled(lambda: len(call.sent()) == 2)
        call.answers.put_nowait(cygrpc.EOF)
        task.cancel()
        with pytest.raises(ReplicaLost):
            await asyncio.wait_for(other, 5)
        await run
        assert task.cancelled()


async def test_refusal_is_raised_as_it_is(call: HandCall, stream: Stream) -> None:
    task = ask(stream, 1)
    await settled(lambda: len(call.sent()) == 1)
    refused = error_item(Overloaded("full", retry_after_s=7))
    call.answers.put_nowait(EmbedResponse(request_id=1, refused=refused, last=True))
    with pytest.raises(Overloaded) as overloaded:
        await task
    assert overloaded.value.retry_after_s == 7


async def test_malformed_answer_fails_only_its_request(call: HandCall, stream: Stream) -> None:
    bad, good = ask(stream, 1), ask(stream, 2)
    await settled(lambda: len(call.sent()) == 2)
    one, two = call.sent()
    malformed = answer_to(one)
    malformed.outputs[0].dim = 7
    call.answers.put_nowait(malformed)
    with pytest.raises(ServerError):
        await bad
    call.answers.put_nowait(answer_to(two))
    await good


@pytest.mark.parametrize("end", [cygrpc.EOF, ConnectionError("gone")])
async def test_end_of_the_stream_loses_what_is_in_flight(call: HandCall, end: object) -> None:
    stream = Stream(GrpcWire(call), Lane.ONLINE, fake_info().outputs)
    async with running(stream.run()):
        task = ask(stream, 1)
        await settled(lambda: len(call.sent()) == 1)
        call.answers.put_nowait(end)
        with pytest.raises(ReplicaLost):
            await task
        with pytest.raises(ReplicaLost):
            await stream.request([fake_sequence([1])])
