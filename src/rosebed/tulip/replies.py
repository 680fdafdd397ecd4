"""From finished requests to responses: whole, or in chunks that a stream can interleave."""

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rosebed.core.errors import RosebedError
from rosebed.core.types import Float32Array, OutputKind
from rosebed.proto.codec import error_item
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse
from rosebed.tulip.request import RequestState

RowStarts = Mapping[OutputKind, list[int]]
_WIRE_FLOAT = np.dtype("<f4")


class Chunk(NamedTuple):
    """The rows that one response carries, of the sequences [first, stop)."""

    first: int
    stop: int
    rows: Mapping[OutputKind, tuple[int, int]]
    """Half-open range of rows of each kind."""


def refusal(request_id: int, error: RosebedError) -> EmbedResponse:
    """The answer to a request that failed as a whole."""
    return EmbedResponse(request_id=request_id, last=True, refused=error_item(error))


def responses(request_id: int, state: RequestState, *, chunk_bytes: int | None = None) -> Iterator[EmbedResponse]:
    """The answer to `state`, which is done: responses of about `chunk_bytes`, or one of any size for None.

    Rows are copied into a response when it is asked for, so that a slow reader costs no second copy of the whole.
    """
    if state.failure is not None:
        yield refusal(request_id, state.failure)
        return
    rows, row_starts = _successful(state)
    if chunk_bytes is None or sum(array.nbytes for array in rows.values()) <= chunk_bytes:
        yield _whole(request_id, state, rows)
        return
    row_bytes = {kind: array.itemsize * array.shape[1] for kind, array in rows.items()}
    chunks = plan_chunks(row_starts, row_bytes, chunk_bytes)
    for number, chunk in enumerate(chunks, start=1):
        response = EmbedResponse(
            request_id=request_id, first_sequence=chunk.first, num_sequences=chunk.stop - chunk.first
        )
        for kind, (start, stop) in chunk.rows.items():
            _add_output(response, kind, rows[kind][start:stop])
        if number == len(chunks):
            _close(response, state)
        yield response


def _whole(request_id: int, state: RequestState, rows: Mapping[OutputKind, Float32Array]) -> EmbedResponse:
    """The answer in one response."""
    response = EmbedResponse(request_id=request_id, num_sequences=len(state.sequences))
    for kind, array in rows.items():
        _add_output(response, kind, array)
    _close(response, state)
    return response


def plan_chunks(row_starts: RowStarts, row_bytes: Mapping[OutputKind, int], chunk_bytes: int) -> list[Chunk]:
    """Cut an answer into chunks of at most `chunk_bytes`, at sequences where possible, else at rows."""
    num_sequences = len(next(iter(row_starts.values()))) - 1
    # list[num_sequences + 1], bytes up to each sequence
    ends = [sum(row_bytes[kind] * starts[i] for kind, starts in row_starts.items()) for i in range(num_sequences + 1)]
    chunks: list[Chunk] = []
    first = 0
    while first < num_sequences:
        stop = bisect_right(ends, ends[first] + chunk_bytes) - 1
        if stop > first:
            chunks.append(Chunk(first, stop, _row_ranges(row_starts, first, stop)))
        else:
            stop = first + 1
            chunks.extend(_cut_sequence(first, _row_ranges(row_starts, first, stop), row_bytes, chunk_bytes))
        first = stop
    return chunks


def _cut_sequence(
    index: int, rows: Mapping[OutputKind, tuple[int, int]], row_bytes: Mapping[OutputKind, int], chunk_bytes: int
) -> Iterator[Chunk]:
    for kind, (start, stop) in rows.items():
        step = max(1, chunk_bytes // row_bytes[kind])
        for at in range(start, stop, step):
            yield Chunk(index, index + 1, {kind: (at, min(at + step, stop))})


def _row_ranges(row_starts: RowStarts, first: int, stop: int) -> dict[OutputKind, tuple[int, int]]:
    return {kind: (starts[first], starts[stop]) for kind, starts in row_starts.items()}


def _successful(state: RequestState) -> tuple[Mapping[OutputKind, Float32Array], RowStarts]:
    """Rows and row starts without the sequences that failed."""
    if not state.errors:
        return state.rows, state.row_starts
    succeeded = np.ones(len(state.sequences), bool)
    succeeded[list(state.errors)] = False
    rows: dict[OutputKind, Float32Array] = {}
    row_starts: dict[OutputKind, list[int]] = {}
    for kind, starts in state.row_starts.items():
        counts = np.diff(starts)
        rows[kind] = state.rows[kind][np.repeat(succeeded, counts)]
        row_starts[kind] = [0, *np.cumsum(counts * succeeded).tolist()]
    return rows, row_starts


def _add_output(response: EmbedResponse, kind: OutputKind, rows: Float32Array) -> None:
    response.outputs.add(
        kind=int(kind),  # pyright: ignore[reportArgumentType]
        dtype=DTYPE_FLOAT32,
        dim=rows.shape[1],
        rows=len(rows),
        data=rows.astype(_WIRE_FLOAT, copy=False).tobytes(),
    )


def _close(response: EmbedResponse, state: RequestState) -> None:
    """Make `response` the last of its request."""
    response.last = True
    if state.errors:
        response.errors.extend(error_item(error, index) for index, error in sorted(state.errors.items()))
    timings = response.timings
    timings.queue_ns = state.taken_ns - state.arrived_ns
    timings.compute_ns = state.computed_ns - state.taken_ns
    timings.device_ns = state.device_ns
    timings.steps = state.num_steps
    timings.total_ns = time.monotonic_ns() - state.arrived_ns
