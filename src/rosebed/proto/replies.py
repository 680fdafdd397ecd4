"""Answers: the responses of one request, put back together. Knows the request, since rows follow from its sequences."""

from collections.abc import Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from rosebed.core.errors import RosebedError, ServerError
from rosebed.core.outputs import OutputSpecs
from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.proto.failures import error_of
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, Output


@dataclass(frozen=True, slots=True)
class ReplyTimings:
    """Where a request's time went at the server, in nanoseconds."""

    queue_ns: int = 0
    """From arrival until the last sequence left the queue."""
    compute_ns: int = 0
    """From then until the last step's result was on the host."""
    total_ns: int = 0
    """From arrival until the response was built."""
    device_ns: int = 0
    """Time the device spent on the steps that this request was part of, its neighbours in them included."""
    num_steps: int = 0
    """How many steps those were."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplyRows:
    """A request's answer: rows of each output, and an error for each sequence that failed."""

    outputs: Mapping[OutputKind, Float32Array]
    """float32[rows, dim] of each kind: the rows of the sequences that succeeded, in order."""
    row_starts: Mapping[OutputKind, AnySequence[int]]
    """num_sequences + 1 numbers of each kind: sequence i owns rows [row_starts[i], row_starts[i + 1])."""
    errors: Mapping[int, RosebedError]
    timings: ReplyTimings

    def rows(self, kind: OutputKind, index: int) -> Float32Array:
        """float32[its rows, dim] of one sequence; raises its error if it failed."""
        if index in self.errors:
            raise self.errors[index]
        starts = self.row_starts[kind]
        return self.outputs[kind][starts[index] : starts[index + 1]]


@dataclass(slots=True)
class _Part:
    """One output in the making."""

    dim: int
    chunks: list[bytes] = field(default_factory=list[bytes])

    def rows(self) -> Float32Array:
        data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        return np.frombuffer(data, "<f4").astype(np.float32, copy=False).reshape(-1, self.dim)


class Assembler:
    """Collects the responses of one request until the last; a malformed one is a `ServerError`."""

    def __init__(self, sequences: AnySequence[Sequence], specs: OutputSpecs) -> None:
        """`sequences` as they were sent, `specs` as the replica's `Info` gave them."""
        self._sequences = sequences
        self._specs = specs
        self._parts = {kind: _Part(_dim(sequences[0], kind, specs)) for kind in sequences[0].outputs}
        self._errors: dict[int, RosebedError] = {}
        self._refusal: RosebedError | None = None
        self._timings = ReplyTimings()
        self.done = False
        """Whether the last response has come."""

    def add(self, response: EmbedResponse) -> None:
        """Take the next response, in the order they came."""
        if response.HasField("refused"):
            self._refusal = error_of(response.refused)
        for item in response.errors:
            if item.index >= len(self._sequences):
                raise ServerError(f"the replica reports an error for sequence {item.index} of {len(self._sequences)}")
            self._errors[item.index] = error_of(item)
        for output in response.outputs:
            self._append(output)
        if response.last:
            timings = response.timings
            self._timings = ReplyTimings(
                timings.queue_ns, timings.compute_ns, timings.total_ns, timings.device_ns, timings.steps
            )
            self.done = True

    def _append(self, output: Output) -> None:
        part = self._parts.get(int(output.kind))  # pyright: ignore[reportArgumentType, reportCallIssue]
        data = output.data
        if part is None or output.dtype != DTYPE_FLOAT32 or output.dim != part.dim:
            raise ServerError(
                f"the replica sent output kind {output.kind}, dtype {output.dtype}, dim {output.dim}, not as asked"
            )
        if len(data) != 4 * output.rows * output.dim:
            raise ServerError(f"the replica sent {len(data)} bytes for {output.rows} rows of {output.dim}")
        part.chunks.append(data)

    def result(self) -> ReplyRows:
        """The whole answer, once `done`; raises the server's reason if it refused the request."""
        if not self.done:
            raise ValueError("the last response has not come yet")
        if self._refusal is not None:
            raise self._refusal
        outputs = {kind: part.rows() for kind, part in self._parts.items()}
        row_starts = {kind: self._row_starts(kind) for kind in outputs}
        for kind, rows in outputs.items():
            if len(rows) != row_starts[kind][-1]:
                raise ServerError(f"the replica sent {len(rows)} {kind.name} rows, not {row_starts[kind][-1]}")
        return ReplyRows(outputs=outputs, row_starts=row_starts, errors=self._errors, timings=self._timings)

    def _row_starts(self, kind: OutputKind) -> list[int]:
        spec = self._specs[kind]
        counts = [0 if i in self._errors else spec.rows(s) for i, s in enumerate(self._sequences)]
        return [0, *accumulate(counts)]


def _dim(sequence: Sequence, kind: OutputKind, specs: OutputSpecs) -> int:
    if kind is OutputKind.DENSE and sequence.dimensions:
        return sequence.dimensions
    return specs[kind].dim
