"""From finished requests to responses: whole, or in chunks that a stream can interleave."""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rosebed.core.errors import RosebedError
from rosebed.core.types import Float32Array, OutputKind
from rosebed.proto.codec import error_item
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, Output, Timings
from rosebed.tulip.request import RequestState

RowStarts = Mapping[OutputKind, npt.NDArray[np.int64]]


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
    row_bytes = {kind: array.itemsize * array.shape[1] for kind, array in rows.items()}
    chunks = plan_chunks(row_starts, row_bytes, chunk_bytes)
    for number, chunk in enumerate(chunks, start=1):
        response = EmbedResponse(
            request_id=request_id,
            first_sequence=chunk.first,
            num_sequences=chunk.stop - chunk.first,
            outputs=[_output(kind, rows[kind][start:stop]) for kind, (start, stop) in chunk.rows.items()],
        )
        if number == len(chunks):
            _close(response, state)
        yield response


def plan_chunks(row_starts: RowStarts, row_bytes: Mapping[OutputKind, int], chunk_bytes: int | None) -> list[Chunk]:
    """Cut an answer into chunks of at most `chunk_bytes`, at sequences where possible, else at rows."""
    ends = sum(starts * row_bytes[kind] for kind, starts in row_starts.items())
    assert isinstance(ends, np.ndarray)  # int64[num_sequences + 1], bytes up to each sequence
    num_sequences = len(ends) - 1
    if chunk_bytes is None or ends[-1] <= chunk_bytes:
        return [Chunk(0, num_sequences, _row_ranges(row_starts, 0, num_sequences))]
    chunks: list[Chunk] = []
    first = 0
    while first < num_sequences:
        stop = int(np.searchsorted(ends, ends[first] + chunk_bytes, side="right")) - 1
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
    return {kind: (int(starts[first]), int(starts[stop])) for kind, starts in row_starts.items()}


def _successful(state: RequestState) -> tuple[Mapping[OutputKind, Float32Array], RowStarts]:
    """Rows and row starts without the sequences that failed."""
    if not state.errors:
        return state.rows, state.row_starts
    succeeded = np.ones(len(state.sequences), bool)
    succeeded[list(state.errors)] = False
    rows: dict[OutputKind, Float32Array] = {}
    row_starts: dict[OutputKind, npt.NDArray[np.int64]] = {}
    for kind, starts in state.row_starts.items():
        counts = np.diff(starts)
        rows[kind] = state.rows[kind][np.repeat(succeeded, counts)]
        row_starts[kind] = np.concatenate([[0], np.cumsum(counts * succeeded)])
    return rows, row_starts


def _output(kind: OutputKind, rows: Float32Array) -> Output:
    return Output(
        kind=int(kind),  # pyright: ignore[reportArgumentType]
        dtype=DTYPE_FLOAT32,
        dim=rows.shape[1],
        rows=len(rows),
        data=rows.astype("<f4", copy=False).tobytes(),
    )


def _close(response: EmbedResponse, state: RequestState) -> None:
    """Make `response` the last of its request."""
    response.last = True
    response.errors.extend(error_item(error, index) for index, error in sorted(state.errors.items()))
    response.timings.CopyFrom(
        Timings(
            queue_ns=state.taken_ns - state.arrived_ns,
            compute_ns=state.computed_ns - state.taken_ns,
            total_ns=time.monotonic_ns() - state.arrived_ns,
            device_ns=state.device_ns,
            steps=state.num_steps,
        )
    )
