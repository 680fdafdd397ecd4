"""RoBERTa, XLM-RoBERTa, CamemBERT: BERT with a position table whose first rows are never used.

Source: Liu et al., 2019. Positions start behind the padding index, so 8194 rows serve 8192 tokens.
"""

from rosebed.core.checkpoint import Json
from rosebed.core.json_fields import optional_number
from rosebed.rose.models.bert import BertModel
from rosebed.rose.ops.base import Ops

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
        padding_idx = optional_number(config, "pad_token_id", file="config.json")
        super().__init__(config, ops, position_offset=2 if padding_idx is None else padding_idx + 1)
