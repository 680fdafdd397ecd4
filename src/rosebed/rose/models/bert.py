"""BERT: learned absolute positions, post-norm layers. Source of the computation: Devlin et al., 2018."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from rosebed.core.checkpoint import Json
from rosebed.rose.attention.base import Attention
from rosebed.rose.layers import attend, attention_spec, embedding_table, fused_qkv, project_add_norm
from rosebed.rose.models.base import EncoderModel
from rosebed.rose.models.config import EncoderConfig
from rosebed.rose.ops.base import EmbeddingTables, HeadShape, Ops

_HEAD_TENSORS = frozenset(
    {
        "cls.predictions.bias",
        "cls.predictions.decoder.bias",
        "cls.predictions.decoder.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.dense.weight",
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
    }
)
"""Pre-training heads that published BERT checkpoints still carry."""


class BertEmbeddings(nn.Module):
    """Sum of the tables that a configuration has, normed; the first `position_offset` rows of positions are skipped."""

    def __init__(self, config: EncoderConfig, ops: Ops, position_offset: int = 0) -> None:
        super().__init__()
        self.word_embeddings = embedding_table(config.vocab_size, config.hidden_size)
        self.position_embeddings = embedding_table(config.num_positions, config.hidden_size)
        if config.type_vocab_size:
            self.token_type_embeddings = embedding_table(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.ops = ops
        self.position_offset = position_offset
        self.has_token_types = config.type_vocab_size > 0

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None) -> Tensor:
        tables = EmbeddingTables(
            word=self.word_embeddings.weight,
            position=self.position_embeddings.weight[self.position_offset :],
            token_type=self.token_type_embeddings.weight if self.has_token_types else None,
        )
        norm = self.LayerNorm
        return self.ops.embed_layer_norm(input_ids, positions, token_type_ids, tables, norm.weight, norm.bias, norm.eps)


class BertSelfAttention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.qkv = fused_qkv(config.hidden_size, config.heads, bias=True)


class BertOutput(nn.Module):
    """Product, residual, norm."""

    def __init__(self, in_features: int, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.norm_eps)
        self.ops = ops

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return project_add_norm(self.ops, self.dense, self.LayerNorm, x, residual)


class BertAttention(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertOutput(config.hidden_size, config, ops)
        self.ops = ops
        self.heads: HeadShape = config.heads

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        context = attend(self.ops, self.self.qkv, hidden_states, attention, self.heads)
        return self.output(context, hidden_states)


class BertIntermediate(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.ops = ops
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.ops.linear_activation(x, self.dense.weight, self.dense.bias, self.activation)


class BertLayer(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.attention = BertAttention(config, ops)
        self.intermediate = BertIntermediate(config, ops)
        self.output = BertOutput(config.intermediate_size, config, ops)

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        hidden_states = self.attention(hidden_states, attention)
        return self.output(self.intermediate(hidden_states), hidden_states)


class BertEncoder(nn.Module):
    def __init__(self, config: EncoderConfig, ops: Ops) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config, ops) for _ in range(config.num_layers))

    def forward(self, hidden_states: Tensor, attention: Attention) -> Tensor:
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention)
        return hidden_states


class BertModel(EncoderModel):
    """The encoder alone; its pooler is not part of any vector served."""

    PREFIXES = ("", "bert.")
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {"qkv": ("query", "key", "value")}
    IGNORABLE = _HEAD_TENSORS | {
        f"{prefix}{name}"
        for prefix in PREFIXES
        for name in ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
    }

    def __init__(self, config: Json, ops: Ops, *, position_offset: int = 0) -> None:
        super().__init__(config, ops)
        sizes = EncoderConfig.read(config)
        self.embeddings = BertEmbeddings(sizes, ops, position_offset)
        self.encoder = BertEncoder(sizes, ops)
        self.attention_spec = attention_spec(sizes.heads)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None, attention: Attention
    ) -> Tensor:
        return self.encoder(self.embeddings(input_ids, positions, token_type_ids), attention)
