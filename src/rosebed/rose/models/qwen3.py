"""Qwen3, causal (Qwen3-Embedding) and bidirectional (pplx-embed). Source: Qwen3 technical report, 2025.

Pre-norm layers with grouped queries, RMSNorm on every query and key head, rotary positions, gated SiLU.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rosebed.core.checkpoint import Json
from rosebed.core.errors import CheckpointError
from rosebed.core.json_fields import flag, optional_object, texts
from rosebed.rose.attention.base import Attention
from rosebed.rose.layers import FusedLinear, attention_spec, embedding_table, fused_qkv
from rosebed.rose.models.base import EncoderModel
from rosebed.rose.models.config import optional, positive, positive_float, require
from rosebed.rose.ops.base import HeadShape, Ops


class Qwen3Attention(nn.Module):
    def __init__(self, config: Json, ops: Ops) -> None:
        super().__init__()
        self.heads = _heads(config)
        hidden_size = positive(config, "hidden_size")
        self.qkv_proj = fused_qkv(hidden_size, self.heads, bias=False)
        self.o_proj = nn.Linear(self.heads.num_heads * self.heads.head_dim, hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(self.heads.head_dim)
        self.k_norm = nn.RMSNorm(self.heads.head_dim)
        self.eps = _norm_eps(config)
        self.ops = ops

    def forward(self, x: Tensor, positions: Tensor, cos_sin: Tensor, attention: Attention) -> Tensor:
        """[T, num_heads · head_dim], before the output product."""
        qkv = self.ops.linear(x, self.qkv_proj.weight)
        q, k, v = self.ops.qk_norm_rope(
            qkv, self.q_norm.weight, self.k_norm.weight, positions, cos_sin, self.heads, self.eps
        )
        return attention.forward(q, k, v).flatten(1)


class Qwen3MLP(nn.Module):
    """Parameters only: its products are fused with what surrounds them."""

    def __init__(self, config: Json) -> None:
        super().__init__()
        hidden_size, intermediate_size = positive(config, "hidden_size"), positive(config, "intermediate_size")
        self.gate_up_proj = FusedLinear(hidden_size, (intermediate_size, intermediate_size), bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)


class Qwen3Layer(nn.Module):
    """Takes and returns (normed hidden states, the sum so far): its last addition is normed for the next layer."""

    def __init__(self, config: Json, ops: Ops) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(positive(config, "hidden_size"))
        self.self_attn = Qwen3Attention(config, ops)
        self.post_attention_layernorm = nn.RMSNorm(positive(config, "hidden_size"))
        self.mlp = Qwen3MLP(config)
        self.eps = _norm_eps(config)
        self.ops = ops

    def forward(
        self,
        normed: Tensor,  # [T, hidden]
        residual: Tensor,  # [T, hidden]
        positions: Tensor,
        cos_sin: Tensor,
        attention: Attention,
        next_norm: nn.RMSNorm,
    ) -> tuple[Tensor, Tensor]:
        attended = self.self_attn(normed, positions, cos_sin, attention)
        normed, residual = self.ops.linear_add_rms_norm(
            attended, self.self_attn.o_proj.weight, residual, self.post_attention_layernorm.weight, self.eps
        )
        gated = self.ops.linear_silu_mul(normed, self.mlp.gate_up_proj.weight)
        return self.ops.linear_add_rms_norm(gated, self.mlp.down_proj.weight, residual, next_norm.weight, self.eps)


class Qwen3Model(EncoderModel):
    PREFIXES = ("", "model.")
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "gate_up_proj": ("gate_proj", "up_proj"),
    }
    IGNORABLE = frozenset({"lm_head.weight"})

    cos_sin: Tensor  # float32[max_positions, head_dim]

    def __init__(self, config: Json, ops: Ops) -> None:
        super().__init__(config, ops)
        _check(config)
        hidden_size = positive(config, "hidden_size")
        self.embed_tokens = embedding_table(positive(config, "vocab_size"), hidden_size)
        layers = [Qwen3Layer(config, ops) for _ in range(positive(config, "num_hidden_layers"))]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.RMSNorm(hidden_size)
        self._norms = [*(layer.input_layernorm for layer in layers), self.norm]  # what each sum is normed by, in order
        self.register_buffer("cos_sin", rotary_table(config), persistent=False)
        self.eps = _norm_eps(config)
        self.ops = ops
        self.attention_spec = attention_spec(_heads(config), causal=is_causal(config))

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        token_type_ids: Tensor | None,  # noqa: ARG002  (Qwen3 has no token types)
        attention: Attention,
    ) -> Tensor:
        residual = nn.functional.embedding(input_ids, self.embed_tokens.weight)
        normed = self.ops.rms_norm(residual, self._norms[0].weight, self.eps)
        for layer, next_norm in zip(self.layers, self._norms[1:], strict=True):
            normed, residual = layer(normed, residual, positions, self.cos_sin, attention, next_norm)
        return normed


def is_causal(config: Json) -> bool:
    """pplx-embed is Qwen3 without the causal mask; some checkpoints say so by a flag only."""
    is_flagged = flag(config, "is_causal", default=True, file="config.json")
    return config.get("model_type") != "bidirectional_pplx_qwen3" and is_flagged


def rotary_table(config: Json) -> Tensor:
    """float32[max_positions, head_dim] of cosines, then sines, made on the CPU whatever the default device is."""
    head_dim = _heads(config).head_dim
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    positions = torch.arange(positive(config, "max_position_embeddings"), dtype=torch.float32, device="cpu")
    angles = torch.outer(positions, 1.0 / _rope_theta(config) ** exponents)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def _heads(config: Json) -> HeadShape:
    num_heads = positive(config, "num_attention_heads")
    num_kv_heads = positive(config, "num_key_value_heads")
    if num_heads % num_kv_heads:
        raise CheckpointError(f"config.json: {num_kv_heads} key heads do not divide {num_heads} heads")
    head_dim = optional(config, "head_dim") or positive(config, "hidden_size") // num_heads
    if head_dim < 2 or head_dim % 2:
        raise CheckpointError(f"config.json: heads are {head_dim} wide, which rotary positions cannot halve")
    return HeadShape(num_heads, num_kv_heads, head_dim)


def _norm_eps(config: Json) -> float:
    return positive_float(config, "rms_norm_eps", default=1e-6)


def _rope_theta(config: Json) -> float:
    # transformers 5 moved rope_theta and the former rope_scaling into rope_parameters.
    given = (optional_object(config, key, file="config.json") for key in ("rope_parameters", "rope_scaling"))
    rope = next((parameters for parameters in given if parameters), {})
    require({"rope_type": rope.get("rope_type", rope.get("type"))}, "rope_type", "default")
    top_level = positive_float(config, "rope_theta", default=10_000.0)
    return positive_float(rope, "rope_theta", default=top_level)


def _check(config: Json) -> None:
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    require(config, "use_sliding_window", False)
    for layer_type in texts(config, "layer_types", file="config.json"):
        require({"layer_types": layer_type}, "layer_types", "full_attention")
