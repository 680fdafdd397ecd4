"""What is scheduled and computed: a `Sequence`, and the `Batch` that one forward pass runs.

Positions here are 0…n-1 inside each sequence; what a model makes of them (XLM-RoBERTa's offset) is ROSE's business.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


class OutputKind(IntEnum):
    """What a model can return for a sequence; the numbers are those of the wire."""

    DENSE = 1
    """One vector per pool span, float32[num_spans, dim]."""
    SPARSE = 2
    """One lexical weight per token, float32[num_tokens]."""
    MULTI_VECTOR = 3
    """One vector per token (ColBERT style), float32[num_tokens, dim]."""
    LOGITS = 4
    """One row of class logits per sequence, float32[1, num_labels]."""


class Lane(IntEnum):
    """Traffic class. Bulk work delays online work by one step at most, and by less where an engine separates lanes."""

    ONLINE = 0
    BULK = 1


DENSE_ONLY = frozenset({OutputKind.DENSE})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequence:
    """One tokenized input, the unit of scheduling."""

    token_ids: Int32Array
    """int32[num_tokens], special tokens included; at least one token."""
    pool_spans: Int32Array
    """int32[num_spans, 2], half-open [start, end) in this sequence's own positions; at least one, none empty."""
    token_type_ids: Int32Array | None = None
    """int32[num_tokens] segment of each token; None means all zero."""
    outputs: frozenset[OutputKind] = DENSE_ONLY
    """What the caller wants back."""
    dimensions: int = 0
    """Leading components of the dense vector to keep, before normalisation; 0 keeps all."""
    normalize: bool | None = None
    """L2-normalise the dense vector; None does what the checkpoint's pipeline says."""
    request_id: int = 0
    """The request this sequence belongs to."""
    index: int = 0
    """Its place among that request's inputs."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_spans(self) -> int:
        return len(self.pool_spans)


def whole_span(num_tokens: int) -> Int32Array:
    """The one pool span that covers a sequence: int32[1, 2]."""
    span = np.zeros((1, 2), np.int32)
    span[0, 1] = num_tokens
    return span


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceLayout:
    """Where each sequence and span lies on the packed token axis. Pure numpy, made once per batch."""

    cu_seqlens: Int32Array
    """int32[num_sequences + 1], the running total of tokens."""
    positions: Int32Array
    """int32[num_tokens], 0…n-1 in each sequence."""
    max_seqlen: int
    """Tokens of the longest sequence."""
    spans: Int32Array
    """int32[num_spans, 2], half-open, in packed token coordinates."""
    span_owners: Int32Array
    """int32[num_spans], the sequence each span belongs to."""

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.positions)

    @property
    def num_spans(self) -> int:
        return len(self.spans)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """What one forward pass runs: sequences packed along one token axis, never padded."""

    sequences: tuple[Sequence, ...]
    layout: SequenceLayout
    lane: Lane = field(default=Lane.ONLINE)

    @classmethod
    def pack(cls, sequences: Iterable[Sequence], *, lane: Lane = Lane.ONLINE) -> "Batch":
        """Lay out `sequences` (at least one) in order."""
        packed = tuple(sequences)
        if not packed:
            raise ValueError("a batch needs at least one sequence")
        return cls(sequences=packed, layout=_lay_out(packed), lane=lane)

    @property
    def num_tokens(self) -> int:
        return self.layout.num_tokens

    @property
    def num_sequences(self) -> int:
        return len(self.sequences)

    @cached_property
    def token_ids(self) -> Int32Array:
        """int32[num_tokens], all sequences end to end."""
        return np.concatenate([sequence.token_ids for sequence in self.sequences])

    @cached_property
    def token_type_ids(self) -> Int32Array | None:
        """int32[num_tokens], or None when every sequence leaves them out (all zero)."""
        if all(sequence.token_type_ids is None for sequence in self.sequences):
            return None
        return np.concatenate(
            [
                np.zeros(sequence.num_tokens, np.int32) if sequence.token_type_ids is None else sequence.token_type_ids
                for sequence in self.sequences
            ]
        )

    @cached_property
    def outputs(self) -> frozenset[OutputKind]:
        """Every kind that some sequence wants."""
        if all(sequence.outputs == DENSE_ONLY for sequence in self.sequences):
            return DENSE_ONLY
        return frozenset[OutputKind]().union(*(sequence.outputs for sequence in self.sequences))


def _lay_out(sequences: tuple[Sequence, ...]) -> SequenceLayout:
    return _lay_out_one(sequences[0]) if len(sequences) == 1 else _lay_out_many(sequences)


def _lay_out_one(sequence: Sequence) -> SequenceLayout:
    """The same for a query by itself, in a fifth of the time."""
    num_tokens = sequence.num_tokens
    return SequenceLayout(
        cu_seqlens=np.array((0, num_tokens), np.int32),
        positions=np.arange(num_tokens, dtype=np.int32),
        max_seqlen=num_tokens,
        spans=sequence.pool_spans,
        span_owners=np.zeros(sequence.num_spans, np.int32),
    )


def _lay_out_many(sequences: tuple[Sequence, ...]) -> SequenceLayout:
    lengths = np.array([sequence.num_tokens for sequence in sequences], np.int32)
    cu_seqlens = np.zeros(len(sequences) + 1, np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    starts = cu_seqlens[:-1]
    span_counts = np.array([sequence.num_spans for sequence in sequences], np.int32)
    owners = np.repeat(np.arange(len(sequences), dtype=np.int32), span_counts)
    spans = np.concatenate([sequence.pool_spans for sequence in sequences]) + starts[owners, None]
    return SequenceLayout(
        cu_seqlens=cu_seqlens,
        positions=np.arange(cu_seqlens[-1], dtype=np.int32) - np.repeat(starts, lengths),
        max_seqlen=int(lengths.max()),
        spans=spans.astype(np.int32, copy=False),
        span_owners=owners,
    )
