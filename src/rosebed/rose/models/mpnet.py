"""MPNet: BERT's layers with a learned bias per head and token distance, one table for all layers.

Source: Song et al., 2020; the distance buckets are T5's (Raffel et al., 2019). No token types.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rosebed.core.checkpoint import Json
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import Attention
from rosebed.rose.layers import attend, attention_spec, embedding_table, fused_qkv, project_add_norm
from rosebed.rose.models.base import EncoderModel
from rosebed.rose.models.bert import BertEmbeddings, BertIntermediate, BertOutput
from rosebed.rose.models.config import EncoderConfig, positive
from rosebed.rose.ops.base import Ops
from rosebed.rose.positions import counted_positions

PADDING_IDX = 1
"""Hard-coded by MPNet, whatever pad_token_id says; positions start behind it."""
MAX_DISTANCE = 128
"""Tokens: all farther ones share the last bucket."""

_ENCODER_EXTRAS = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
_MASKED_LM_HEAD = (
    "lm_head.bias",
    "lm_head.decoder.bias",
    "lm_head.decoder.weight",
    "lm_head.dense.bias",
    "lm_head.dense.weight",
    "lm_head.layer_norm.bias",
    "lm_head.layer_norm.weight",
)


class MPNetSelfAttention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.qkv = fused_qkv(config.hidden_size, config.heads, bias=True)
        self.o = nn.Linear(config.hidden_size, config.hidden_size)


class MPNetAttention(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.attn = MPNetSelfAttention(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.ops = ops
        self.heads = config.heads

    def forward(self, hidden_states: Tensor, attention: Attention, relative_bias: Tensor) -> Tensor:
        context = attend(self.ops, self.attn.qkv, hidden_states, attention, self.heads, relative_bias=relative_bias)
        return project_add_norm(self.ops, self.attn.o, self.LayerNorm, context, hidden_states)


class MPNetLayer(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.attention = MPNetAttention(config, ops)
        self.intermediate = BertIntermediate(config, ops)
        self.output = BertOutput(config.intermediate_size, config, ops)

    def forward(self, hidden_states: Tensor, attention: Attention, relative_bias: Tensor) -> Tensor:
        hidden_states = self.attention(hidden_states, attention, relative_bias)
        return self.output(self.intermediate(hidden_states), hidden_states)


class MPNetEncoder(nn.Module):
    distance_buckets: Tensor  # int64[2 · num_positions - 1]

    def __init__(self, config: EncoderConfig, num_buckets: int, ops: Ops) -> None:
        super().__init__()
        self.layer = nn.ModuleList(MPNetLayer(config, ops) for _ in range(config.num_layers))
        self.relative_attention_bias = embedding_table(num_buckets, config.num_heads)
        buckets = distance_buckets(config.num_positions, num_buckets)
        self.register_buffer("distance_buckets", buckets, persistent=False)

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        relative_bias = self.relative_attention_bias.weight[self.distance_buckets].T.float().contiguous()
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention, relative_bias)
        return hidden_states


class MPNetModel(EncoderModel):
    PREFIXES = ("", "mpnet.")
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {"qkv": ("q", "k", "v")}
    IGNORABLE = frozenset(_MASKED_LM_HEAD) | {f"{prefix}{name}" for prefix in PREFIXES for name in _ENCODER_EXTRAS}

    def __init__(self, config: Json, ops: Ops) -> None:
        super().__init__(config, ops)
        sizes = EncoderConfig.read(config).without_token_types()
        self.embeddings = BertEmbeddings(sizes, ops, PADDING_IDX)
        self.encoder = MPNetEncoder(sizes, positive(config, "relative_attention_num_buckets"), ops)
        self.attention_spec = attention_spec(sizes.heads, relative_bias=True)

    def positions(self, layout: SequenceLayout, token_ids: Int32Array) -> Int32Array:
        return counted_positions(layout, token_ids, PADDING_IDX)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None, attention: Attention
    ) -> Tensor:
        return self.encoder(self.embeddings(input_ids, positions, token_type_ids), attention)


def distance_buckets(num_positions: int, num_buckets: int) -> Tensor:
    """int64[2 · num_positions - 1]: the bias row of each distance key - query, from 1 - num_positions up.

    Half of the rows are for keys ahead; of each half, the first half are single distances, the rest grow
    logarithmically up to MAX_DISTANCE.
    """
    distance = torch.arange(1 - num_positions, num_positions, device="cpu")
    half = num_buckets // 2
    exact = half // 2
    far = distance.abs().clamp_min(1).float()
    steps = (torch.log(far / exact) / math.log(MAX_DISTANCE / exact) * (half - exact)).long()
    buckets = torch.where(distance.abs() < exact, distance.abs(), (exact + steps).clamp_max(half - 1))
    return buckets + half * (distance > 0)
