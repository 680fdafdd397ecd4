"""DistilBERT: BERT without token types, under names of its own. Source: Sanh et al., 2019."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from rosebed.core.checkpoint import Json
from rosebed.rose.attention.base import Attention
from rosebed.rose.layers import attend, attention_spec, fused_qkv, project_add_norm
from rosebed.rose.models.base import EncoderModel
from rosebed.rose.models.bert import BertEmbeddings
from rosebed.rose.models.config import EncoderConfig, activation, positive
from rosebed.rose.ops.base import Ops

NORM_EPS = 1e-12
"""Not in the checkpoint's configuration: fixed by the architecture."""


class DistilBertAttention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.qkv_lin = fused_qkv(config.hidden_size, config.heads, bias=True)
        self.out_lin = nn.Linear(config.hidden_size, config.hidden_size)


class DistilBertFeedForward(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.lin1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.lin2 = nn.Linear(config.intermediate_size, config.hidden_size)


class DistilBertLayer(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.attention = DistilBertAttention(config)
        self.sa_layer_norm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.ffn = DistilBertFeedForward(config)
        self.output_layer_norm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.config = config
        self.ops = ops

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        context = attend(self.ops, self.attention.qkv_lin, hidden_states, attention, self.config.heads)
        hidden_states = project_add_norm(self.ops, self.attention.out_lin, self.sa_layer_norm, context, hidden_states)
        lin1 = self.ffn.lin1
        inner = self.ops.linear_activation(hidden_states, lin1.weight, lin1.bias, self.config.activation)
        return project_add_norm(self.ops, self.ffn.lin2, self.output_layer_norm, inner, hidden_states)


class DistilBertTransformer(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.layer = nn.ModuleList(DistilBertLayer(config, ops) for _ in range(config.num_layers))

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention)
        return hidden_states


class DistilBertModel(EncoderModel):
    PREFIXES = ("", "distilbert.")
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {"qkv_lin": ("q_lin", "k_lin", "v_lin")}
    IGNORABLE = frozenset(
        {
            "embeddings.position_ids",
            "distilbert.embeddings.position_ids",
            "vocab_layer_norm.bias",
            "vocab_layer_norm.weight",
            "vocab_projector.bias",
            "vocab_projector.weight",
            "vocab_transform.bias",
            "vocab_transform.weight",
        }
    )

    def __init__(self, config: Json, ops: Ops) -> None:
        super().__init__(config, ops)
        sizes = _read(config)
        self.embeddings = BertEmbeddings(sizes, ops)
        self.transformer = DistilBertTransformer(sizes, ops)
        self.attention_spec = attention_spec(sizes.heads)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None, attention: Attention
    ) -> Tensor:
        return self.transformer(self.embeddings(input_ids, positions, token_type_ids), attention)


def _read(config: Json) -> EncoderConfig:
    return EncoderConfig(
        num_layers=positive(config, "n_layers"),
        hidden_size=positive(config, "dim"),
        num_heads=positive(config, "n_heads"),
        intermediate_size=positive(config, "hidden_dim"),
        vocab_size=positive(config, "vocab_size"),
        num_positions=positive(config, "max_position_embeddings"),
        type_vocab_size=0,
        activation=activation(config, "activation"),
        norm_eps=NORM_EPS,
    )
