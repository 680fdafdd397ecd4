"""The operations that models are written in: one protocol, an implementation per device.

A module of plain functions satisfies `Ops` (see `reference`); so does an object that binds device state, such as the
number of valid tokens of a padded CUDA-graph bucket. Models receive one at construction and never ask which it is.
Knows no model, no checkpoint, no batch.

Rules for every implementation: statistics, softmax-like sums and pooling in float32, results in the input's dtype
unless said otherwise; no host synchronisation and no shape that depends on data, so that a CUDA graph can capture it.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from torch import Tensor

from rosebed.core.model_spec import Pooling


class Activation(StrEnum):
    """Pointwise functions between two products, under the names that `hidden_act` uses in config.json."""

    GELU = "gelu"
    """The exact one, by erf."""
    GELU_TANH = "gelu_pytorch_tanh"
    RELU = "relu"
    SILU = "silu"


class EmbeddingTables(NamedTuple):
    """What an encoder adds up per token."""

    word: Tensor
    """[vocab_size, hidden]"""
    position: Tensor
    """[usable_positions, hidden]; row 0 is position 0, an architecture's offset is already cut off."""
    token_type: Tensor | None
    """[type_vocab_size, hidden]"""


class LayerNormWeights(NamedTuple):
    """What a LayerNorm has learned, and its floor."""

    weight: Tensor
    """[H]"""
    bias: Tensor
    """[H]"""
    eps: float


class HeadShape(NamedTuple):
    """How a packed QKV row divides: num_heads queries, num_kv_heads keys, as many values, head_dim each."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


class Ops(Protocol):
    """T = tokens on the packed axis, H = hidden size. Weights of products are [out, in], as checkpoints store them."""

    def embed_layer_norm(
        self,
        input_ids: Tensor,  # int32[T]
        positions: Tensor,  # int32[T]
        token_type_ids: Tensor | None,  # int32[T]; None means type 0 for every token, if there is a type table
        tables: EmbeddingTables,
        weight: Tensor,  # [H]
        bias: Tensor,  # [H]
        eps: float,
    ) -> Tensor:
        """[T, H]: LayerNorm of word + position + token type rows."""
        ...

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[T, out]: x W^T + bias."""
        ...

    def linear_add_layer_norm(
        self,
        x: Tensor,  # [T, in]
        weight: Tensor,  # [H, in]
        bias: Tensor,  # [H]
        residual: Tensor,  # [T, H]; may be overwritten
        norm: LayerNormWeights,
    ) -> Tensor:
        """[T, H]: LayerNorm(x W^T + bias + residual), how both halves of a post-norm layer end."""
        ...

    def linear_add_rms_norm(
        self,
        x: Tensor,  # [T, in]
        weight: Tensor,  # [H, in]
        residual: Tensor,  # [T, H]; may be overwritten
        norm_weight: Tensor,  # [H]
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        """([T, H] RMSNorm(s), [T, H] s) of s = x W^T + residual: a pre-norm layer's end and the next one's start."""
        ...

    def linear_activation(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
        """[T, out]: activation(x W^T + bias)."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[T, H]: x / sqrt(mean(x²) + eps) · weight."""
        ...

    def qk_norm_rope(
        self,
        qkv: Tensor,  # [T, (num_heads + 2 · num_kv_heads) · head_dim]: all queries, all keys, all values
        q_weight: Tensor,  # [head_dim]
        k_weight: Tensor,  # [head_dim]
        positions: Tensor,  # int32[T]
        cos_sin: Tensor,  # float32[max_positions, head_dim]: head_dim / 2 cosines, then as many sines
        heads: HeadShape,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(q [T, num_heads, head_dim], k [T, num_kv_heads, head_dim], v likewise): RMSNorm per head on q and k, then
        rotary embedding of the half-split kind, (x1, x2) → (x1·cos - x2·sin, x2·cos + x1·sin). v may be a view."""
        ...

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        """[T, I] from gate_up [2I, H], gate rows first: silu(x gate^T) · (x up^T)."""
        ...

    def pool(self, hidden_states: Tensor, spans: Tensor, mode: Pooling) -> Tensor:
        """float32[num_spans, H] from [T, H] and spans int32[num_spans, 2], half-open, in any order, overlaps allowed.
        Empty spans at the end (padding of a bucket) give rows that mean nothing."""
        ...

    def finalize_dense(self, vectors: Tensor, dimensions: Tensor, normalize: Tensor) -> tuple[Tensor, Tensor]:
        """What a caller gets of float32[num_spans, dim] vectors: the first `dimensions` (int32[num_spans], 1…dim) of
        them, the rest zeros, then divided by their L2 norm where `normalize` (bool[num_spans]); and bool[num_spans],
        whether the norm of the kept part is finite (NaN, infinity and overflow all show there)."""
        ...
