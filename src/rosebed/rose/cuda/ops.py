"""`Ops` on CUDA: Triton kernels for what is fused, cuBLAS for large products, chosen per shape and token count.

Every choice depends on shapes alone, so that a graph captured for a token bucket holds what is best for it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.model_spec import Pooling
from rosebed.rose.cuda.linear_table import ProductKind, ProductShape
from rosebed.rose.ops.base import Activation, EmbeddingTables, HeadShape, LayerNormWeights
from rosebed.rose.ops.triton import activations, embed, norms, pool, rope
from rosebed.rose.ops.triton.small_linear import Epilogue, LinearTiles, small_linear

EPILOGUES = {
    Activation.GELU: Epilogue.GELU,
    Activation.GELU_TANH: Epilogue.GELU_TANH,
    Activation.RELU: Epilogue.RELU,
    Activation.SILU: Epilogue.SILU,
}

_GELUS = frozenset({Epilogue.GELU, Epilogue.GELU_TANH})


class ChoosesTiles(Protocol):
    """A table of kernels; `LinearTable` is the measured one."""

    def choose(self, shape: ProductShape, num_tokens: int) -> LinearTiles | None:
        """Tiles for `small_linear`, or None for cuBLAS."""
        ...


@dataclass(frozen=True, slots=True)
class CudaOps:
    """See `rosebed.rose.ops.base.Ops` for what each operation means."""

    table: ChoosesTiles
    pdl: bool
    """Launch kernels with programmatic dependent launch (compute capability 9.0 and later)."""

    def _tiles(self, kind: ProductKind, x: Tensor, weight: Tensor) -> LinearTiles | None:
        out_features = weight.shape[0] // (2 if kind is ProductKind.GATED else 1)
        return self.table.choose(ProductShape(kind, out_features, weight.shape[1]), len(x))

    def embed_layer_norm(
        self,
        input_ids: Tensor,
        positions: Tensor,
        token_type_ids: Tensor | None,
        tables: EmbeddingTables,
        weight: Tensor,
        bias: Tensor,
        eps: float,
    ) -> Tensor:
        return embed.embed_layer_norm(input_ids, positions, token_type_ids, tables, weight, bias, eps)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        tiles = self._tiles(ProductKind.PLAIN, x, weight)
        if tiles is None:
            return F.linear(x, weight, bias)
        return small_linear(x, weight, bias, tiles=tiles, pdl=self.pdl)

    def linear_add_layer_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: LayerNormWeights
    ) -> Tensor:
        tiles = self._tiles(ProductKind.UNREDUCED, x, weight)
        if tiles is None:
            # cuBLAS adds to what is there: the norm then reads one tensor instead of two.
            return norms.add_layer_norm(residual.addmm_(x, weight.T), None, norm, x_bias=bias, pdl=self.pdl)
        parts = small_linear(x, weight, None, tiles=tiles, pdl=self.pdl)
        return norms.add_layer_norm(parts, residual, norm, x_bias=bias, pdl=self.pdl)

    def linear_add_rms_norm(
        self, x: Tensor, weight: Tensor, residual: Tensor, norm_weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        tiles = self._tiles(ProductKind.UNREDUCED, x, weight)
        if tiles is None:
            residual.addmm_(x, weight.T)
            return norms.rms_norm(residual, norm_weight, eps, pdl=self.pdl), residual
        parts = small_linear(x, weight, None, tiles=tiles, pdl=self.pdl)
        return norms.add_rms_norm(parts, residual, norm_weight, eps, pdl=self.pdl)

    def linear_activation(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
        tiles = self._tiles(ProductKind.ACTIVATION, x, weight)
        epilogue = EPILOGUES[activation]
        if tiles is None and bias is not None and x.dtype != torch.float32 and epilogue in _GELUS:
            # cuBLAS has the tanh form only: it differs from erf by less than a bfloat16 rounds off (docs/log.md).
            return torch.ops.aten._addmm_activation(bias, x, weight.T, use_gelu=True)  # noqa: SLF001
        if tiles is None:
            return activations.bias_activation_(F.linear(x, weight), bias, epilogue, pdl=self.pdl)
        return small_linear(x, weight, bias, tiles=tiles, epilogue=epilogue, pdl=self.pdl)

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        tiles = self._tiles(ProductKind.GATED, x, gate_up)
        if tiles is None:
            return activations.silu_and_mul(F.linear(x, gate_up), pdl=self.pdl)
        return small_linear(x, gate_up, None, tiles=tiles, epilogue=Epilogue.SILU_MUL, pdl=self.pdl)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return norms.rms_norm(x, weight, eps, pdl=self.pdl)

    def qk_norm_rope(
        self,
        qkv: Tensor,
        q_weight: Tensor,
        k_weight: Tensor,
        positions: Tensor,
        cos_sin: Tensor,
        heads: HeadShape,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rope.qk_norm_rope(qkv, q_weight, k_weight, positions, cos_sin, heads, eps, pdl=self.pdl)
        num_heads, num_kv_heads, head_dim = heads
        q, k, v = qkv.unflatten(-1, (-1, head_dim)).split((num_heads, num_kv_heads, num_kv_heads), dim=1)
        return q, k, v

    def pool(self, hidden_states: Tensor, spans: Tensor, mode: Pooling) -> Tensor:
        return pool.pool(hidden_states, spans, mode)

    def finalize_dense(self, vectors: Tensor, dimensions: Tensor, normalize: Tensor) -> tuple[Tensor, Tensor]:
        return pool.finalize_dense(vectors, dimensions, normalize)
