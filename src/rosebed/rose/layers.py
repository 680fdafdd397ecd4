"""Steps that post-norm encoders share, over the parameters of whichever architecture calls them."""

import torch
from torch import Tensor, nn

from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.ops.base import HeadShape, LayerNormWeights, Ops


def attention_spec(heads: HeadShape, *, causal: bool = False, relative_bias: bool = False) -> AttentionSpec:
    """The spec of full attention over `heads`."""
    return AttentionSpec(
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        causal=causal,
        relative_bias=relative_bias,
    )


def embedding_table(num_rows: int, width: int) -> nn.Embedding:
    """An embedding whose weight is yet to be filled."""
    # NOTE: nn.Embedding's own start values make torch import its compiler on `meta`: 1.5 s and 150 MB.
    return nn.Embedding.from_pretrained(torch.empty(num_rows, width))


class FusedLinear(nn.Linear):
    """Several of the checkpoint's products at once; each has its own rows of the weight, in order."""

    def __init__(self, in_features: int, part_sizes: tuple[int, ...], *, bias: bool) -> None:
        super().__init__(in_features, sum(part_sizes), bias=bias)
        self.part_sizes = part_sizes


def fused_qkv(hidden_size: int, heads: HeadShape, *, bias: bool) -> FusedLinear:
    """The product that makes queries, keys and values at once."""
    num_heads, num_kv_heads, head_dim = heads
    part_sizes = (num_heads * head_dim, num_kv_heads * head_dim, num_kv_heads * head_dim)
    return FusedLinear(hidden_size, part_sizes, bias=bias)


def split_heads(qkv: Tensor, heads: HeadShape) -> tuple[Tensor, Tensor, Tensor]:
    """Views q [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim] of a packed [T, …] tensor."""
    num_heads, num_kv_heads, head_dim = heads
    q, k, v = qkv.view(qkv.shape[0], -1, head_dim).split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    return q, k, v


def attend(
    ops: Ops,
    qkv: nn.Linear,
    hidden_states: Tensor,
    attention: Attention,
    heads: HeadShape,
    *,
    relative_bias: Tensor | None = None,
) -> Tensor:
    """[T, hidden] of concatenated heads, before the output product."""
    q, k, v = split_heads(ops.linear(hidden_states, qkv.weight, qkv.bias), heads)
    return attention.forward(q, k, v, relative_bias).flatten(1)


def project_add_norm(ops: Ops, dense: nn.Linear, norm: nn.LayerNorm, x: Tensor, residual: Tensor) -> Tensor:
    """LayerNorm(dense(x) + residual): how both halves of a post-norm layer end."""
    weights = LayerNormWeights(norm.weight, norm.bias, norm.eps)
    return ops.linear_add_layer_norm(x, dense.weight, dense.bias, residual, weights)
