"""Shapes of what a step returns. Every size follows from the batch alone, so memory is reserved before launch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from rosebed.core.types import Batch, Float32Array, OutputKind, Sequence

ALIGNMENT = 64
"""Bytes: each output starts on a cache line."""


class RowsPer(StrEnum):
    """What one row of an output stands for."""

    SPAN = "span"
    TOKEN = "token"
    SEQUENCE = "sequence"


class RowStatus(IntEnum):
    """One byte per sequence, written by the step."""

    OK = 0
    NON_FINITE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """One output of a model: float32[rows, dim]."""

    rows_per: RowsPer
    dim: int

    def rows(self, sequence: Sequence) -> int:
        """Rows that `sequence` takes in this output."""
        if self.rows_per is RowsPer.SPAN:
            return sequence.num_spans
        return sequence.num_tokens if self.rows_per is RowsPer.TOKEN else 1

    @property
    def row_bytes(self) -> int:
        return 4 * self.dim


OutputSpecs = Mapping[OutputKind, OutputSpec]


def output_bytes(sequence: Sequence, specs: OutputSpecs) -> int:
    """Bytes that the wanted outputs of one sequence take."""
    return sum(specs[kind].rows(sequence) * specs[kind].row_bytes for kind in sequence.outputs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputSlot:
    """One output's place in the step's byte buffer: float32[rows, dim] at `offset`."""

    offset: int
    dim: int
    row_starts: npt.NDArray[np.int64]
    """int64[num_sequences + 1]: sequence i owns rows [row_starts[i], row_starts[i + 1]); none if it did not ask."""

    @property
    def rows(self) -> int:
        return int(self.row_starts[-1])

    @property
    def num_bytes(self) -> int:
        return 4 * self.dim * self.rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputLayout:
    """One buffer for a whole step: a status byte per sequence, then each output, aligned."""

    num_sequences: int
    slots: Mapping[OutputKind, OutputSlot]
    num_bytes: int

    @classmethod
    def plan(cls, batch: Batch, specs: OutputSpecs) -> "OutputLayout":
        """The layout of `batch`'s outputs. KeyError if a wanted output is not in `specs`."""
        offset = _align(batch.num_sequences)
        slots: dict[OutputKind, OutputSlot] = {}
        for kind in sorted(batch.outputs):
            spec = specs[kind]
            row_starts = np.zeros(batch.num_sequences + 1, np.int64)
            np.cumsum([spec.rows(s) if kind in s.outputs else 0 for s in batch.sequences], out=row_starts[1:])
            slots[kind] = OutputSlot(offset=offset, dim=spec.dim, row_starts=row_starts)
            offset = _align(offset + slots[kind].num_bytes)
        return cls(num_sequences=batch.num_sequences, slots=slots, num_bytes=offset)


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepResult:
    """A finished step, as views into its buffer: valid until the `LazyTensor` it came from is released."""

    layout: OutputLayout
    buffer: npt.NDArray[np.uint8]
    """uint8[layout.num_bytes]."""
    device_ns: int = 0
    """Time the device spent on the step; 0 where it is not measured."""

    @property
    def status(self) -> npt.NDArray[np.uint8]:
        """uint8[num_sequences] of `RowStatus`."""
        return self.buffer[: self.layout.num_sequences]

    def output(self, kind: OutputKind) -> Float32Array:
        """float32[rows, dim] of one output, all sequences."""
        slot = self.layout.slots[kind]
        return self.buffer[slot.offset : slot.offset + slot.num_bytes].view(np.float32).reshape(slot.rows, slot.dim)

    def rows(self, kind: OutputKind, sequence: int) -> Float32Array:
        """float32[its rows, dim] of the sequence at that place in the batch."""
        starts = self.layout.slots[kind].row_starts
        return self.output(kind)[starts[sequence] : starts[sequence + 1]]
