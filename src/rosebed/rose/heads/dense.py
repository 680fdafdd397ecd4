"""The dense vector: pooling over spans, the checkpoint's Dense modules, then what each caller wants of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rosebed.core.errors import CheckpointError
from rosebed.core.model_spec import DenseStage, ModelSpec
from rosebed.core.types import DENSE_ONLY, Batch, Int32Array, OutputKind
from rosebed.rose.checkpoint_tensors import open_tensors
from rosebed.rose.models.base import Loadable
from rosebed.rose.ops.base import Ops
from rosebed.rose.weights import load_weights

Scalar = TypeVar("Scalar", bound=np.generic)

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    activation.__name__: activation
    for activation in (nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.Mish, nn.ReLU, nn.Sigmoid, nn.SiLU, nn.Tanh)
}
"""Those without settings of their own, at torch's defaults, as sentence-transformers makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseRows:
    """The dense vectors that a batch asks for, one per span of each sequence that wants them, in order."""

    spans: Int32Array
    """int32[num_rows, 2], half-open, in packed token coordinates."""
    dimensions: Int32Array
    """int32[num_rows]: leading components to keep."""
    normalize: npt.NDArray[np.bool_]
    """bool[num_rows]"""
    owners: Int32Array
    """int32[num_rows]: the sequence each belongs to."""

    @classmethod
    def of(cls, batch: Batch, spec: ModelSpec) -> "DenseRows":
        sequences, owners = batch.sequences, batch.layout.span_owners
        if all(s.outputs == DENSE_ONLY and not s.dimensions and s.normalize is None for s in sequences):
            return cls(
                spans=batch.layout.spans,
                dimensions=_filled(np.empty(len(owners), np.int32), spec.dim),
                normalize=_filled(np.empty(len(owners), np.bool_), spec.normalize),
                owners=owners,
            )
        dimensions = np.array([sequence.dimensions or spec.dim for sequence in sequences], np.int32)
        normalize = np.array([spec.normalize if s.normalize is None else s.normalize for s in sequences], np.bool_)
        wanted = np.array([OutputKind.DENSE in sequence.outputs for sequence in sequences], np.bool_)[owners]
        owners = owners[wanted]
        return cls(
            spans=batch.layout.spans[wanted],
            dimensions=dimensions[owners],
            normalize=normalize[owners],
            owners=owners,
        )


def _filled(array: npt.NDArray[Scalar], value: int) -> npt.NDArray[Scalar]:
    """What numpy.full does, in a third of the time for a short array."""
    array.fill(value)
    return array


class DenseProjection(Loadable):
    """activation(x W^T + b) on pooled vectors."""

    def __init__(self, stage: DenseStage) -> None:
        super().__init__()
        if stage.activation not in _ACTIVATIONS:
            raise CheckpointError(
                f"{stage.path}/config.json: activation {stage.activation} is not served; {', '.join(_ACTIVATIONS)} are"
            )
        self.linear = nn.Linear(stage.in_features, stage.out_features, bias=stage.bias)
        self.activation = _ACTIVATIONS[stage.activation]()

    def forward(self, vectors: Tensor) -> Tensor:
        return self.activation(self.linear(vectors))


class DenseHead(nn.Module):
    """Hidden states and spans in, finished vectors out. Only enqueues work: a CUDA graph can capture it."""

    def __init__(self, spec: ModelSpec, ops: Ops) -> None:
        super().__init__()
        self.projections = nn.ModuleList(DenseProjection(stage) for stage in spec.dense)
        self.pooling = spec.pooling
        self.ops = ops

    def load(self, spec: ModelSpec, device: torch.device) -> None:
        """Fill the projections from the stages' folders."""
        for stage, projection in zip(spec.dense, self.projections, strict=True):
            assert isinstance(projection, DenseProjection)
            load_weights(projection, open_tensors(Path(spec.folder, stage.path)), dtype=torch.float32, device=device)

    def forward(
        self,
        hidden_states: Tensor,  # [T, hidden]
        spans: Tensor,  # int32[num_rows, 2]
        dimensions: Tensor,  # int32[num_rows]
        normalize: Tensor,  # bool[num_rows]
    ) -> tuple[Tensor, Tensor]:
        """float32[num_rows, dim], zero from `dimensions` on; and bool[num_rows], whether all of a row is finite."""
        return self.ops.finalize_dense(self.vectors(hidden_states, spans), dimensions, normalize)

    def vectors(self, hidden_states: Tensor, spans: Tensor) -> Tensor:
        """float32[num_rows, dim], before truncation and normalisation."""
        return self.project(self.ops.pool(hidden_states, spans, self.pooling))

    def project(self, vectors: Tensor) -> Tensor:
        """float32[num_rows, dim] of float32[num_rows, hidden], pooled: the Dense modules."""
        for projection in self.projections:
            vectors = projection(vectors)
        return vectors
