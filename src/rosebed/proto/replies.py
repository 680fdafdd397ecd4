"""Answers: the responses of one request, put back together. Knows the request, since rows follow from its sequences."""

from collections.abc import Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rosebed.core.errors import RosebedError, ServerError
from rosebed.core.outputs import OutputSpecs
from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.proto.failures import error_of
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, Output


class ReplyTimings(NamedTuple):
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


_WIRE_FLOAT = np.dtype("<f4")
_NO_TIMINGS = ReplyTimings()


class Assembler:
    """Collects the responses of one request until the last; a malformed one is a `ServerError`."""

    def __init__(self, sequences: AnySequence[Sequence], specs: OutputSpecs) -> None:
        """`sequences` as they were sent, `specs` as the replica's `Info` gave them."""
        self._sequences = sequences
        self._specs = specs
        self._wanted = sequences[0].outputs
        self._chunks: dict[int, list[bytes]] = {}
        """Of each kind, the rows that came."""
        self._errors: dict[int, RosebedError] = {}
        self._refusal: RosebedError | None = None
        self._timings = _NO_TIMINGS
        self.done = False
        """Whether the last response has come."""

    def add(self, response: EmbedResponse) -> None:
        """Take the next response, in the order they came."""
        if response.HasField("refused"):
            self._refusal = error_of(response.refused)
        if response.errors:
            self._add_errors(response)
        for output in response.outputs[:]:  # a list: to iterate over what protobuf has takes twice as long
            self._append(output)
        if response.last:
            timings = response.timings
            self._timings = ReplyTimings(
                timings.queue_ns, timings.compute_ns, timings.total_ns, timings.device_ns, timings.steps
            )
            self.done = True

    def _add_errors(self, response: EmbedResponse) -> None:
        for item in response.errors:
            if item.index >= len(self._sequences):
                raise ServerError(f"the replica reports an error for sequence {item.index} of {len(self._sequences)}")
            self._errors[item.index] = error_of(item)

    def _append(self, output: Output) -> None:
        kind, dim, data = int(output.kind), output.dim, output.data  # pyright: ignore[reportArgumentType]
        if kind not in self._wanted or output.dtype != DTYPE_FLOAT32 or dim != self._dim(kind):
            raise ServerError(
                f"the replica sent output kind {output.kind}, dtype {output.dtype}, dim {output.dim}, not as asked"
            )
        if len(data) != 4 * output.rows * dim:
            raise ServerError(f"the replica sent {len(data)} bytes for {output.rows} rows of {dim}")
        self._chunks.setdefault(kind, []).append(data)

    def _dim(self, kind: int) -> int:
        """Components of a row. `kind` is one that was asked for, as it is on the wire."""
        dimensions = self._sequences[0].dimensions
        if dimensions and kind == OutputKind.DENSE:
            return dimensions
        return self._specs[kind].dim  # pyright: ignore[reportArgumentType]

    def result(self) -> ReplyRows:
        """The whole answer, once `done`; raises the server's reason if it refused the request."""
        if not self.done:
            raise ValueError("the last response has not come yet")
        if self._refusal is not None:
            raise self._refusal
        outputs: dict[OutputKind, Float32Array] = {}
        row_starts: dict[OutputKind, AnySequence[int]] = {}
        for kind in self._wanted:
            outputs[kind] = rows = self._rows(kind)
            row_starts[kind] = starts = self._row_starts(kind)
            if len(rows) != starts[-1]:
                raise ServerError(f"the replica sent {len(rows)} {kind.name} rows, not {starts[-1]}")
        return ReplyRows(outputs=outputs, row_starts=row_starts, errors=self._errors, timings=self._timings)

    def _rows(self, kind: OutputKind) -> Float32Array:
        chunks = self._chunks.get(kind, ())
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return np.frombuffer(data, _WIRE_FLOAT).astype(np.float32, copy=False).reshape(-1, self._dim(kind))

    def _row_starts(self, kind: OutputKind) -> list[int]:
        spec = self._specs[kind]
        starts = [0]
        for index, sequence in enumerate(self._sequences):
            starts.append(starts[-1] + (0 if index in self._errors else spec.rows(sequence)))
        return starts
