"""Steps on a compiled model: where whole texts are embedded, nothing of a step goes through torch.

A forward pass reads tens of megabytes of weights, after which no code is in the caches any more, so that each call that
is not made counts: torch's pooling and normalising took 0.1 ms by themselves, and 0.5 after one (MiniLM, EPYC).
"""

import numpy as np

from rosebed.core.outputs import RowStatus, StepResult
from rosebed.core.types import DENSE_ONLY, Batch, Float32Array, OutputKind
from rosebed.rose.eager import StepRunner
from rosebed.rose.heads.dense import DenseRows
from rosebed.rose.loader import LoadedModel
from rosebed.rose.openvino.forward import OpenVinoForward
from rosebed.rose.ops.reference import MIN_NORM


class OpenVinoRunner(StepRunner):
    """A compiled model and the heads that are not compiled with it."""

    runs_on_any_thread = True

    def __init__(self, loaded: LoadedModel, forward: OpenVinoForward) -> None:
        super().__init__(loaded, forward)
        self._compiled = forward
        self._spec = loaded.spec

    def run(self, batch: Batch, result: StepResult) -> None:
        if self._compiled.makes_vectors and is_of_whole_texts(batch):
            self._write_vectors(batch, result)
        else:
            super().run(batch, result)

    def _write_vectors(self, batch: Batch, result: StepResult) -> None:
        wanted = DenseRows.of(batch, self._spec)
        vectors = result.output(OutputKind.DENSE)
        np.copyto(vectors, self._compiled.vectors(batch))
        if int(wanted.dimensions.min()) < vectors.shape[1]:
            vectors[np.arange(vectors.shape[1]) >= wanted.dimensions[:, None]] = 0
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        _divide(vectors, np.where(wanted.normalize, np.maximum(norms, np.float32(MIN_NORM)), np.float32(1)))
        result.status[:] = np.where(np.isfinite(norms), RowStatus.OK, RowStatus.NON_FINITE)


def is_of_whole_texts(batch: Batch) -> bool:
    """Whether each sequence is asked for one vector, of all its tokens, and for nothing else."""
    if batch.outputs != DENSE_ONLY or any(OutputKind.DENSE not in sequence.outputs for sequence in batch.sequences):
        return False
    spans, cu_seqlens = batch.layout.spans, batch.layout.cu_seqlens
    return (
        len(spans) == batch.num_sequences
        and bool((spans[:, 0] == cu_seqlens[:-1]).all())
        and bool((spans[:, 1] == cu_seqlens[1:]).all())
    )


def _divide(vectors: Float32Array, divisors: Float32Array) -> None:
    with np.errstate(invalid="ignore"):  # infinity by infinity, in rows that are told of as not finite
        vectors /= divisors[:, None]
