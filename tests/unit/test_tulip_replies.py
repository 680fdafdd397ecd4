"""Answers: cut into chunks, put together again, and written in turn."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import NonFiniteOutput, Overloaded
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import OutputKind, Sequence
from rosebed.proto.codec import Assembler, separated
from rosebed.proto.rosebed_pb2 import EmbedResponse
from rosebed.testing import expected_rows, fake_info, fake_sequence
from rosebed.tulip.replies import responses
from rosebed.tulip.request import RequestState
from rosebed.tulip.writer import Reply, ReplyWriter

KINDS = frozenset({OutputKind.DENSE, OutputKind.MULTI_VECTOR})
INFO = fake_info(
    outputs={
        OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=8),
        OutputKind.MULTI_VECTOR: OutputSpec(rows_per=RowsPer.TOKEN, dim=4),
    }
)


def _done(sequences: list[Sequence], failed: frozenset[int] = frozenset()) -> RequestState:
    """A request whose sequences have their expected rows, or failed."""
    state = RequestState(tuple(sequences), INFO.outputs, on_done=lambda _state: None)
    state.allocate(INFO.outputs)
    for kind, starts in state.row_starts.items():
        for index, sequence in enumerate(sequences):
            rows = expected_rows(sequence, kind, INFO)[:, : state.rows[kind].shape[1]]
            state.rows[kind][starts[index] : starts[index + 1]] = np.nan if index in failed else rows
    state.errors = {index: NonFiniteOutput("not finite") for index in failed}
    return state


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    chunk_bytes=st.one_of(st.none(), st.integers(1, 2000)),
    failed=st.sets(st.integers(0, 11)),
    dimensions=st.integers(0, 8),
)
def test_chunks_come_together_again(
    lengths: list[int], chunk_bytes: int | None, failed: set[int], dimensions: int
) -> None:
    sequences = [
        fake_sequence(range(i, i + length), outputs=KINDS, dimensions=dimensions) for i, length in enumerate(lengths)
    ]
    state = _done(sequences, frozenset(failed & set(range(len(lengths)))))
    assembler = Assembler(sequences, INFO.outputs)
    parts = list(responses(5, state, chunk_bytes=chunk_bytes))
    for response in parts:
        assert not assembler.done
        assert response.request_id == 5
        size = sum(len(output.data) for output in response.outputs)
        assert chunk_bytes is None or size <= max(chunk_bytes, 32)
        assembler.add(response)
    assert assembler.done
    assert chunk_bytes is not None or len(parts) == 1
    reply = assembler.result()
    assert reply.errors.keys() == state.errors.keys()
    for index, sequence in enumerate(sequences):
        if index not in state.errors:
            for kind in KINDS:
                expected = expected_rows(sequence, kind, INFO)[:, : state.rows[kind].shape[1]]
                assert np.array_equal(reply.rows(kind, index), expected)


def test_a_failed_request_is_one_refusal() -> None:
    state = _done([fake_sequence([1])])
    state.failure = Overloaded("full", retry_after_s=3)
    (response,) = responses(9, state)
    assert (response.request_id, response.last, response.refused.code) == (9, True, "overloaded")
    assert response.refused.retry_after_s == 3
    assert not response.outputs


def test_timings_are_differences() -> None:
    state = _done([fake_sequence([1])])
    state.arrived_ns, state.taken_ns, state.computed_ns = 100, 150, 400
    (response,) = responses(1, state)
    assert (response.timings.queue_ns, response.timings.compute_ns) == (50, 250)
    assert response.timings.total_ns > 250


class Wire:
    """Collects what a writer writes; each write waits for `gate`."""

    def __init__(self, *, max_unsent_bytes: int = 10_000) -> None:
        self.written: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.forgotten: list[int] = []
        self.busy = False
        self.writer = ReplyWriter(self._write, chunk_bytes=1000, max_unsent_bytes=max_unsent_bytes)

    async def _write(self, message: EmbedResponse) -> None:
        assert not self.busy
        self.busy = True
        await self.gate.wait()
        self.busy = False
        self.written.append([response.request_id for response in separated(message)])

    def reply(self, request_id: int, *, parts: int = 1, part_bytes: int = 10) -> Reply:
        """An answer of `parts` responses."""
        made = (
            EmbedResponse(
                request_id=request_id,
                outputs=[{"data": bytes(part_bytes)}],
                last=part == parts - 1,
            )
            for part in range(parts)
        )
        return Reply(made, parts * part_bytes, lambda: self.forgotten.append(request_id))


async def test_small_replies_share_a_write() -> None:
    wire = Wire()
    for request_id in range(5):
        wire.writer.send(wire.reply(request_id))
    wire.writer.close()
    await wire.writer.run()
    assert wire.written == [[0, 1, 2, 3, 4]]
    assert wire.forgotten == [0, 1, 2, 3, 4]


async def test_large_replies_take_turns_with_small_ones() -> None:
    wire = Wire()
    wire.writer.send(wire.reply(1, parts=3, part_bytes=1000))
    wire.writer.send(wire.reply(2, parts=2, part_bytes=1000))
    wire.writer.send(wire.reply(3))
    wire.writer.close()
    await wire.writer.run()
    assert wire.written == [[1], [2], [3, 1], [2], [1]]


async def test_nothing_more_is_written_of_an_unwanted_reply() -> None:
    wire = Wire()
    unwanted = wire.reply(1, parts=3, part_bytes=1000)
    wire.writer.send(unwanted)
    wire.writer.send(wire.reply(2))
    wire.gate.clear()
    running = asyncio.ensure_future(wire.writer.run())
    await asyncio.sleep(0)
    unwanted.wanted = False
    wire.gate.set()
    wire.writer.close()
    await running
    assert wire.written == [[1], [2]]
    assert wire.forgotten == [2]


async def test_a_slow_reader_makes_the_stream_wait() -> None:
    wire = Wire(max_unsent_bytes=1500)
    wire.gate.clear()
    running = asyncio.ensure_future(wire.writer.run())
    wire.writer.send(wire.reply(1, part_bytes=1000))
    await asyncio.wait_for(wire.writer.wait_for_room(), 1)
    wire.writer.send(wire.reply(2, part_bytes=1000))
    wire.writer.send(wire.reply(3, part_bytes=1000))
    waiting = asyncio.ensure_future(wire.writer.wait_for_room())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.01)
    wire.gate.set()
    await asyncio.wait_for(waiting, 1)
    wire.writer.close()
    await running
    assert wire.written == [[1], [2], [3]]


async def test_small_replies_that_nobody_reads_count_too() -> None:
    wire = Wire(max_unsent_bytes=100 << 10)
    for number in range(100):
        wire.writer.send(wire.reply(number))
    waiting = asyncio.ensure_future(wire.writer.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    wire.writer.close()
    await asyncio.gather(wire.writer.run(), waiting)
    assert wire.forgotten == list(range(100))


def test_a_finished_request_counts_what_it_keeps_alive() -> None:
    state = _done([fake_sequence([1, 2, 3])] * 10)
    rows = sum(rows.nbytes for rows in state.rows.values())
    assert state.held_bytes > rows + 10 * (3 * 4 + 200)
