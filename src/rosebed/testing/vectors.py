"""The function that `FakeEngine` computes, for tests to predict. Knows nothing of batches: rows depend on one sequence.

With a hash h, a vector of d components is `x[j] = ((h + 1) · (j + 1) · 40503 mod 2²⁴) / 2²⁴ - 0.5`, exact in float32.

- DENSE, per span: h = Σ (t + 1) · (ids[t] + 7 · types[t]) over the span's tokens, t counted from the span's start; cut
  to `dimensions`, then divided by its norm if normalising; components that were cut are 0.
- MULTI_VECTOR, per token: h = (position + 1) · ids[position].
- SPARSE, per token: ids[position] / 2²⁴, one component.
- LOGITS, per sequence: h as for a span over the whole sequence.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rosebed.core.engine import BatchLimits, EngineInfo
from rosebed.core.outputs import OutputSpec, OutputSpecs, RowsPer
from rosebed.core.types import DENSE_ONLY, Float32Array, OutputKind, Sequence, whole_span

_SCALE = 1 << 24
_SPREAD = 40503

Int64Array = npt.NDArray[np.int64]


def fake_info(
    *,
    limits: BatchLimits | None = None,
    outputs: OutputSpecs | None = None,
    max_length: int = 512,
    max_in_flight: int = 2,
    normalize: bool = True,
) -> EngineInfo:
    """What a `FakeEngine` says of itself: dense vectors of 8 components unless `outputs` says otherwise."""
    return EngineInfo(
        model="fake",
        architecture="FakeModel",
        dtype="float32",
        device="none",
        vocab_size=30_000,
        type_vocab_size=2,
        max_length=max_length,
        outputs=outputs or {OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=8)},
        normalize=normalize,
        limits=limits or BatchLimits(tokens=512, sequences=64, spans=256, output_bytes=1 << 24),
        max_in_flight=max_in_flight,
        fingerprint="fake-fingerprint",
    )


def fake_sequence(
    token_ids: Iterable[int],
    *,
    outputs: frozenset[OutputKind] = DENSE_ONLY,
    dimensions: int = 0,
    normalize: bool | None = None,
    index: int = 0,
) -> Sequence:
    """A sequence of these ids with one span over all of them."""
    ids = np.fromiter(token_ids, np.int32)
    return Sequence(
        token_ids=ids,
        pool_spans=whole_span(len(ids)),
        outputs=outputs,
        dimensions=dimensions,
        normalize=normalize,
        index=index,
    )


def expected_rows(sequence: Sequence, kind: OutputKind, info: EngineInfo) -> Float32Array:
    """What `FakeEngine` returns for one output of one sequence: float32[rows, dim of the output]."""
    spec = info.outputs[kind]
    ids = sequence.token_ids.astype(np.int64)
    if kind is OutputKind.SPARSE:
        return (ids / _SCALE).astype(np.float32).reshape(-1, 1)
    if kind is OutputKind.MULTI_VECTOR:
        return _vectors(np.arange(1, len(ids) + 1) * ids, spec.dim)
    if kind is OutputKind.LOGITS:
        return _vectors(_span_hashes(sequence, whole_span(len(ids))), spec.dim)
    rows = _vectors(_span_hashes(sequence, sequence.pool_spans), spec.dim)
    rows[:, sequence.dimensions or spec.dim :] = 0
    if info.normalize if sequence.normalize is None else sequence.normalize:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _span_hashes(sequence: Sequence, spans: npt.NDArray[np.int32]) -> Int64Array:
    values = sequence.token_ids.astype(np.int64)
    if sequence.token_type_ids is not None:
        values += 7 * sequence.token_type_ids.astype(np.int64)
    return np.array([np.arange(1, end - start + 1) @ values[start:end] for start, end in spans.tolist()], np.int64)


def _vectors(hashes: Int64Array, dim: int) -> Float32Array:
    """float32[len(hashes), dim]."""
    # NOTE: reduced before each product, so that no int64 overflows.
    scaled = (hashes + 1) % _SCALE * _SPREAD % _SCALE
    return (scaled[:, None] * np.arange(1, dim + 1) % _SCALE / _SCALE - 0.5).astype(np.float32)
