"""RoBERTa, XLM-RoBERTa, CamemBERT: BERT with a position table whose first rows are never used.

Source: Liu et al., 2019. Positions start behind the padding index, so 8194 rows serve 8192 tokens; the row at the
index itself is for padding tokens that a text spells out.
"""

from rosebed.core.checkpoint import Json
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.models.bert import BertModel
from rosebed.rose.models.config import optional
from rosebed.rose.ops.base import Ops
from rosebed.rose.positions import counted_positions

DEFAULT_PADDING_IDX = 1

_ENCODER_EXTRAS = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias")
_MASKED_LM_HEAD = (
    "lm_head.bias",
    "lm_head.decoder.bias",
    "lm_head.decoder.weight",
    "lm_head.dense.bias",
    "lm_head.dense.weight",
    "lm_head.layer_norm.bias",
    "lm_head.layer_norm.weight",
)


class XlmRobertaModel(BertModel):
    """One encoder for the whole family; the checkpoints differ in their prefix at most."""

    PREFIXES = ("", "roberta.")
    IGNORABLE = frozenset(_MASKED_LM_HEAD) | {f"{prefix}{name}" for prefix in PREFIXES for name in _ENCODER_EXTRAS}

    def __init__(self, config: Json, ops: Ops) -> None:
        padding_idx = optional(config, "pad_token_id")
        self.padding_idx = DEFAULT_PADDING_IDX if padding_idx is None else padding_idx
        super().__init__(config, ops, position_offset=self.padding_idx)

    def positions(self, layout: SequenceLayout, token_ids: Int32Array) -> Int32Array:
        return counted_positions(layout, token_ids, self.padding_idx)
