"""`Embed` over real gRPC: values, item errors, statuses, deadlines and cancellation."""

import asyncio

import grpc
import numpy as np
import pytest
from tulip_live import eventually, failed_call, live

from rosebed.core.engine import BatchLimits, Completion
from rosebed.core.errors import NonFiniteOutput, StepFailed
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Lane, OutputKind, Sequence
from rosebed.proto.codec import request_message
from rosebed.testing import FakeEngine, Faults, StepTime, fake_info, fake_sequence

OUTPUTS = {
    OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=8),
    OutputKind.SPARSE: OutputSpec(rows_per=RowsPer.TOKEN, dim=1),
    OutputKind.LOGITS: OutputSpec(rows_per=RowsPer.SEQUENCE, dim=2),
}


@pytest.mark.parametrize("completion", list(Completion))
async def test_every_output_comes_back_exactly(completion: Completion) -> None:
    async with live(FakeEngine(fake_info(outputs=OUTPUTS), completion=completion)) as tulip:
        kinds = frozenset(OUTPUTS)
        sequences = [
            fake_sequence([5, 6, 7], outputs=kinds, dimensions=3, normalize=False),
            fake_sequence([8], outputs=kinds, dimensions=3, normalize=False, index=1),
        ]
        reply = await tulip.embed(sequences)
        assert reply.outputs[OutputKind.DENSE].shape == (2, 3)
        tulip.check(sequences, reply)
        assert reply.timings.total_ns >= reply.timings.queue_ns + reply.timings.compute_ns > 0


async def test_spans_and_token_types_come_through() -> None:
    async with live(FakeEngine()) as tulip:
        spans = np.array([[0, 2], [1, 4], [0, 4]], np.int32)
        types = np.array([0, 0, 1, 1], np.int32)
        sequence = Sequence(token_ids=np.array([1, 2, 3, 4], np.int32), pool_spans=spans, token_type_ids=types)
        reply = await tulip.embed([sequence, fake_sequence([9])])
        assert reply.rows(OutputKind.DENSE, 0).shape == (3, 8)
        tulip.check([sequence, fake_sequence([9])], reply)


async def test_a_large_request_is_split_over_many_batches() -> None:
    async with live(FakeEngine(), max_request_sequences=3000) as tulip:
        sequences = [fake_sequence([i, i + 1, i + 2], index=i) for i in range(2500)]
        tulip.check(sequences, await tulip.embed(sequences, lane=Lane.BULK))
        assert len(tulip.engine.batches) > 2500 * 3 / 512


async def test_items_fail_alone() -> None:
    faults = Faults(raise_in_result={1001}, poison={1002})
    async with live(FakeEngine(faults=faults)) as tulip:
        sequences = [fake_sequence([n], index=i) for i, n in enumerate([7, 1001, 8, 1002, 9])]
        reply = await tulip.embed(sequences)
        assert sorted(reply.errors) == [1, 3]
        assert isinstance(reply.errors[1], StepFailed)
        assert isinstance(reply.errors[3], NonFiniteOutput)
        for index in (0, 2, 4):
            alone = await tulip.embed([sequences[index]])
            assert np.array_equal(reply.rows(OutputKind.DENSE, index), alone.rows(OutputKind.DENSE, 0))


async def test_hundreds_in_flight_each_get_their_own_vectors() -> None:
    limits = BatchLimits(tokens=64, sequences=16, spans=64, output_bytes=1 << 20)
    engine = FakeEngine(fake_info(limits=limits), step_time=StepTime(base_s=0.001))
    async with live(engine) as tulip:
        batches = [[fake_sequence([n, k]) for k in range(n % 7 + 1)] for n in range(400)]
        replies = await asyncio.gather(*(tulip.embed(sequences) for sequences in batches))
        for sequences, reply in zip(batches, replies, strict=True):
            tulip.check(sequences, reply)
        assert max(batch.num_sequences for batch in engine.batches) == 16


async def test_a_refusal_has_status_code_and_details() -> None:
    async with live(FakeEngine()) as tulip:
        message = request_message([fake_sequence([1, 2])], request_id=1)
        message.token_ids = np.array([1, -1], "<i4").tobytes()
        status, metadata, details = await failed_call(tulip.stub.Embed(message))
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert (metadata["rosebed-code"], metadata["rosebed-param"]) == ("invalid_input", "sequences[0]")
        assert details == "token_ids: -1 in sequences[0] is outside [0, 30000)"
        await tulip.embed([fake_sequence([1])])


async def test_overload_is_refused_with_a_time_to_retry() -> None:
    async with live(FakeEngine(), max_queued_sequences=2) as tulip:
        tulip.engine.by_hand = True
        waiting = asyncio.ensure_future(tulip.embed([fake_sequence([1]), fake_sequence([2])]))
        await eventually(lambda: len(tulip.engine.unfinished) == 1)
        call = tulip.stub.Embed(request_message([fake_sequence([3])], request_id=2))
        status, metadata, _ = await failed_call(call)
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert metadata["rosebed-code"] == "overloaded"
        assert int(metadata["rosebed-retry-after-s"]) >= 1
        tulip.engine.finish_next()
        await waiting
        tulip.engine.by_hand = False
        await tulip.embed([fake_sequence([3])])


async def test_too_many_sequences_are_refused() -> None:
    async with live(FakeEngine(), max_request_sequences=3) as tulip:
        call = tulip.stub.Embed(request_message([fake_sequence([1])] * 4, request_id=1))
        status, metadata, details = await failed_call(call)
        assert (status, metadata["rosebed-param"]) == (grpc.StatusCode.INVALID_ARGUMENT, "lengths")
        assert details == "the request holds 4 sequences, at most 3 are taken"


async def test_a_message_over_the_limit_is_refused_and_the_next_is_not() -> None:
    async with live(FakeEngine(), max_message_bytes=2000) as tulip:
        call = tulip.stub.Embed(request_message([fake_sequence([1] * 500)] * 2, request_id=1))
        status, _, _ = await failed_call(call)
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        await tulip.embed([fake_sequence([1] * 300)])


@pytest.mark.parametrize("by_grpc", [True, False])
async def test_a_deadline_ends_the_call_and_frees_the_queue(by_grpc: bool) -> None:
    engine = FakeEngine(faults=Faults(hang={13}))
    async with live(engine) as tulip:
        timeout_ns = 0 if by_grpc else 50_000_000
        message = request_message([fake_sequence([13])], request_id=1, timeout_ns=timeout_ns)
        status, _, _ = await failed_call(tulip.stub.Embed(message, timeout=0.05 if by_grpc else 5))
        assert status is grpc.StatusCode.DEADLINE_EXCEEDED
        message = request_message([fake_sequence([1])], request_id=2, timeout_ns=timeout_ns)
        await failed_call(tulip.stub.Embed(message, timeout=0.05 if by_grpc else 5))
        scheduler = tulip.server.step_loop.scheduler
        # The sequence in the hanging step keeps its permit; the queued one gave its back.
        await eventually(lambda: scheduler.admission.held(Lane.ONLINE).sequences == 1)
        assert scheduler.queue.num_requests(Lane.ONLINE) == 0


async def test_a_cancelled_call_leaves_the_queue() -> None:
    async with live(FakeEngine(faults=Faults(hang={13}))) as tulip:
        scheduler = tulip.server.step_loop.scheduler
        hanging = tulip.stub.Embed(request_message([fake_sequence([13])], request_id=1))
        await eventually(lambda: scheduler.num_in_flight == 1)
        queued = tulip.stub.Embed(request_message([fake_sequence([1])] * 5, request_id=2))
        await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 5)
        queued.cancel()
        await eventually(lambda: scheduler.queue.backlog(Lane.ONLINE).sequences == 0)
        assert scheduler.admission.held(Lane.ONLINE).sequences == 1
        hanging.cancel()
