"""`Ops` in plain torch where values may be looked at on the way: the reference, by shorter ways for few rows."""

import torch
from torch import Tensor

from rosebed.core.model_spec import Pooling
from rosebed.rose.ops import reference
from rosebed.rose.ops.reference import (
    MIN_NORM,
    embed_layer_norm,
    linear,
    linear_activation,
    linear_add_layer_norm,
    linear_add_rms_norm,
    linear_silu_mul,
    qk_norm_rope,
    rms_norm,
)

__all__ = [
    "embed_layer_norm",
    "finalize_dense",
    "linear",
    "linear_activation",
    "linear_add_layer_norm",
    "linear_add_rms_norm",
    "linear_silu_mul",
    "pool",
    "qk_norm_rope",
    "rms_norm",
]

FEW_SPANS = 4
"""Up to so many means are taken one by one: each is a call, the others' way is some twenty for any number."""


def pool(hidden_states: Tensor, spans: Tensor, mode: Pooling) -> Tensor:
    if mode is not Pooling.MEAN or len(spans) > FEW_SPANS:
        return reference.pool(hidden_states, spans, mode)
    # torch adds a column in pieces, too.
    return torch.stack([hidden_states[start:end].mean(0, dtype=torch.float32) for start, end in spans.tolist()])


def finalize_dense(vectors: Tensor, dimensions: Tensor, normalize: Tensor) -> tuple[Tensor, Tensor]:
    if int(dimensions.min()) < vectors.shape[1] or not bool(normalize.all()):
        return reference.finalize_dense(vectors, dimensions, normalize)
    norms = torch.linalg.vector_norm(vectors, dim=1)
    return vectors / norms.clamp_min(MIN_NORM).unsqueeze(1), norms.isfinite()
