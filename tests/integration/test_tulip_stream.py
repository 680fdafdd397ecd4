"""`EmbedStream` over real gRPC: interleaving, chunks, cancellation, refusals that leave the stream alone."""

import asyncio

import grpc
import numpy as np
import pytest
from tulip_live import eventually, live

from rosebed.core.engine import BatchLimits, Completion
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Lane, OutputKind
from rosebed.proto.codec import request_message
from rosebed.proto.rosebed_pb2 import StreamRequest
from rosebed.testing import FakeEngine, Faults, StepTime, fake_info, fake_sequence

MULTI_VECTOR = frozenset({OutputKind.MULTI_VECTOR})
WIDE = fake_info(
    max_length=4096,
    limits=BatchLimits(tokens=4096, sequences=64, spans=256, output_bytes=1 << 28),
    outputs={
        OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=8),
        OutputKind.MULTI_VECTOR: OutputSpec(rows_per=RowsPer.TOKEN, dim=1024),
    },
)


@pytest.mark.parametrize("completion", list(Completion))
async def test_hundreds_of_requests_interleave(completion: Completion) -> None:
    engine = FakeEngine(completion=completion, step_time=StepTime(base_s=0.0005, per_token_s=1e-6))
    async with live(engine) as tulip, tulip.stream() as stream:
        batches = [[fake_sequence([n, k, 5]) for k in range(n % 5 + 1)] for n in range(500)]
        replies = await asyncio.gather(*(stream.embed(own, n) for n, own in enumerate(batches)))
        for sequences, reply in zip(batches, replies, strict=True):
            tulip.check(sequences, reply)
        assert engine.batches[-1].num_sequences > 1


async def test_messages_that_share_a_write_are_all_answered() -> None:
    async with live(FakeEngine()) as tulip, tulip.stream() as stream:
        await stream.send(*(request_message([fake_sequence([n])], request_id=n) for n in range(20)))
        for n in range(20):
            (response,) = await stream.answer(n)
            assert response.request_id == n
        assert [batch.num_sequences for batch in tulip.engine.batches][-1] == 20


async def test_a_large_answer_comes_in_chunks_and_bit_for_bit() -> None:
    async with live(FakeEngine(WIDE)) as tulip, tulip.stream() as stream:
        sequences = [fake_sequence(range(i, i + 2048), outputs=MULTI_VECTOR) for i in range(2)]
        reply = await stream.embed(sequences, 1)
        tulip.check(sequences, reply)
        parts = stream.responses[1]
        sizes = [len(output.data) for part in parts for output in part.outputs]
        assert sum(sizes) == 2 * 2048 * 1024 * 4
        assert max(sizes) == 256 << 10
        assert len(parts) == 64
        assert [part.last for part in parts] == [False] * 63 + [True]
        assert [part.first_sequence for part in parts] == [0] * 32 + [1] * 32


async def test_large_and_small_answers_interleave() -> None:
    async with live(FakeEngine(WIDE)) as tulip, tulip.stream() as stream:
        large = [fake_sequence(range(4000), outputs=MULTI_VECTOR)]
        small = [fake_sequence([7])]
        await stream.send(
            request_message(large, request_id=1),
            request_message(large, request_id=2),
            request_message(small, request_id=3),
        )
        await asyncio.gather(*(stream.answer(n) for n in (1, 2, 3)))
        last_of = {n: max(i for i, seen in enumerate(stream.order) if seen == n) for n in (1, 2, 3)}
        assert last_of[3] < last_of[1] < last_of[2]
        first_of_second = stream.order.index(2)
        assert first_of_second < last_of[1]


async def test_a_cancelled_request_gets_no_further_response() -> None:
    async with live(FakeEngine()) as tulip, tulip.stream() as stream:
        scheduler, engine = tulip.server.step_loop.scheduler, tulip.engine
        engine.by_hand = True
        await stream.send(request_message([fake_sequence([1] * 500)], request_id=1))
        await stream.send(request_message([fake_sequence([2] * 500)], request_id=2))
        await stream.send(request_message([fake_sequence([3] * 500)] * 9, request_id=3))
        await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 9)
        await stream.send(1, 3, 99, request_message([fake_sequence([4])], request_id=4))
        await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 1)
        # Two were in steps; of them one was cancelled.
        assert scheduler.admission.held(Lane.ONLINE).sequences == 3
        for left in (2, 1, 0):
            engine.finish_next()
            await eventually(lambda left=left: scheduler.admission.held(Lane.ONLINE).sequences == left)
        await stream.answer(4)
        assert stream.order == [2, 4]
        assert [batch.token_ids[0] for batch in engine.batches] == [0, 1, 2, 4]


async def test_cancelling_stops_an_answer_half_way() -> None:
    async with live(FakeEngine(WIDE), max_unsent_bytes=1 << 30) as tulip, tulip.stream() as stream:
        large = [fake_sequence(range(4000), outputs=MULTI_VECTOR)] * 4
        await stream.send(request_message(large, request_id=1))
        await eventually(lambda: 1 in stream.responses)
        await stream.send(1)
        await stream.embed([fake_sequence([4])], 2)
        assert not stream.responses.pop(1)[-1].last
        await stream.embed([fake_sequence([5])], 1)


async def test_an_id_in_use_is_refused() -> None:
    async with live(FakeEngine(faults=Faults(hang={13}))) as tulip, tulip.stream() as stream:
        await stream.send(request_message([fake_sequence([13])], request_id=1))
        await stream.send(request_message([fake_sequence([1])], request_id=1))
        (response,) = await stream.answer(1)
        assert (response.refused.code, response.refused.param) == ("invalid_input", "request_id")


async def test_an_empty_message_is_refused() -> None:
    async with live(FakeEngine()) as tulip, tulip.stream() as stream:
        await stream.call.write(StreamRequest())
        (response,) = await stream.answer(0)
        assert response.refused.message == "a message should hold embed or cancel"
        await stream.embed([fake_sequence([4])], 1)


async def test_a_deadline_on_the_stream_is_one_refusal() -> None:
    async with live(FakeEngine(faults=Faults(hang={13}))) as tulip, tulip.stream() as stream:
        await stream.send(request_message([fake_sequence([13])], request_id=1, timeout_ns=30_000_000))
        (response,) = await stream.answer(1)
        assert response.refused.code == "deadline_exceeded"


async def test_leaving_clients_take_their_work_with_them() -> None:
    async with live(FakeEngine(faults=Faults(hang={13}))) as tulip:
        scheduler = tulip.server.step_loop.scheduler
        async with tulip.stream() as stream:
            await stream.send(request_message([fake_sequence([13])], request_id=1))
            await stream.send(request_message([fake_sequence([1] * 400)] * 50, request_id=2))
            await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 49)
        await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 0)
        assert scheduler.admission.held(Lane.ONLINE).sequences == 2


async def test_half_closing_waits_for_what_is_open() -> None:
    async with live(FakeEngine(step_time=StepTime(base_s=0.05))) as tulip, tulip.stream() as stream:
        await stream.send(request_message([fake_sequence([1])], request_id=1))
        await stream.call.done_writing()
        await stream.answer(1)
        assert await stream.call.code() is grpc.StatusCode.OK


async def test_garbage_ends_its_stream_and_nothing_else() -> None:
    async with live(FakeEngine()) as tulip:
        raw = tulip.channel.stream_stream(
            "/rosebed.v1.Tulip/EmbedStream", request_serializer=bytes, response_deserializer=bytes
        )
        call = raw()
        await call.write(b"\xff\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        async with tulip.stream() as stream:
            await stream.embed([fake_sequence([1])], 1)


async def test_a_reader_that_does_not_read_is_not_read_from() -> None:
    async with live(FakeEngine(WIDE), max_unsent_bytes=1 << 20) as tulip:
        call = tulip.stub.EmbedStream()
        message = StreamRequest(embed=request_message([fake_sequence(range(2000), outputs=MULTI_VECTOR)], request_id=0))

        async def flood() -> None:
            for request_id in range(1000):
                message.embed.request_id = request_id
                await call.write(message)

        flooding = asyncio.ensure_future(flood())
        scheduler = tulip.server.step_loop.scheduler
        # How many it reads before answers pile up is a matter of time; that it stops is not.
        warm_up = len(tulip.engine.batches)
        await eventually(lambda: len(tulip.engine.batches) > warm_up and scheduler.idle)
        await asyncio.sleep(0.3)
        assert scheduler.idle
        assert len(tulip.engine.batches) < 50
        flooding.cancel()
        call.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        tulip.check([fake_sequence([3])], await tulip.embed([fake_sequence([3])]))


async def test_refusals_on_a_stream_name_the_fault_and_leave_it_alive() -> None:
    async with live(FakeEngine()) as tulip, tulip.stream() as stream:
        bad = request_message([fake_sequence([1, 2]), fake_sequence([3])], request_id=1)
        bad.token_ids = np.array([1, 2, 30_000], "<i4").tobytes()
        await stream.send(bad, request_message([fake_sequence([9])], request_id=2))
        (refused,) = await stream.answer(1)
        assert (refused.refused.code, refused.refused.param) == ("invalid_input", "sequences[1]")
        (served,) = await stream.answer(2)
        assert not served.HasField("refused")
