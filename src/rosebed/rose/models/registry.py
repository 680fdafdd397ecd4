"""Architectures by the class name in config.json, imported when asked for. One line adds one."""

from importlib import import_module
from typing import cast

from rosebed.core.errors import CheckpointError
from rosebed.rose.models.base import EncoderModel

_BERT = "rosebed.rose.models.bert:BertModel"
_ROBERTA = "rosebed.rose.models.xlm_roberta:XlmRobertaModel"
_MPNET = "rosebed.rose.models.mpnet:MPNetModel"
_DISTILBERT = "rosebed.rose.models.distilbert:DistilBertModel"
_QWEN3 = "rosebed.rose.models.qwen3:Qwen3Model"

ARCHITECTURES = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "BertForPreTraining": _BERT,
    "CamembertModel": _ROBERTA,
    "CamembertForMaskedLM": _ROBERTA,
    "DistilBertModel": _DISTILBERT,
    "DistilBertForMaskedLM": _DISTILBERT,
    "MPNetModel": _MPNET,
    "MPNetForMaskedLM": _MPNET,
    "PPLXQwen3Model": _QWEN3,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3Model": _QWEN3,
    "RobertaModel": _ROBERTA,
    "RobertaForMaskedLM": _ROBERTA,
    "XLMRobertaModel": _ROBERTA,
    "XLMRobertaForMaskedLM": _ROBERTA,
}
"""Name in the checkpoint → module:class. Language-model heads of the same encoder are read past."""


def model_class(architecture: str) -> type[EncoderModel]:
    """The class that computes `architecture`. CheckpointError if there is none."""
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"config.json: architecture {architecture!r} is not served; these are: {', '.join(ARCHITECTURES)}"
        )
    module, _, name = ARCHITECTURES[architecture].partition(":")
    return cast(type[EncoderModel], getattr(import_module(module), name))
