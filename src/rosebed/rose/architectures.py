"""Architectures that are served, by the class name in config.json. Imports no torch, so that anyone may ask."""

_BERT = "rosebed.rose.models.bert:BertModel"
_ROBERTA = "rosebed.rose.models.xlm_roberta:XlmRobertaModel"
_MPNET = "rosebed.rose.models.mpnet:MPNetModel"
_DISTILBERT = "rosebed.rose.models.distilbert:DistilBertModel"
_QWEN3 = "rosebed.rose.models.qwen3:Qwen3Model"

ARCHITECTURES = {
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "BertForPreTraining": _BERT,
    "BertForSequenceClassification": _BERT,
    "CamembertModel": _ROBERTA,
    "CamembertForMaskedLM": _ROBERTA,
    "CamembertForSequenceClassification": _ROBERTA,
    "DistilBertModel": _DISTILBERT,
    "DistilBertForMaskedLM": _DISTILBERT,
    "DistilBertForSequenceClassification": _DISTILBERT,
    "MPNetModel": _MPNET,
    "MPNetForMaskedLM": _MPNET,
    "MPNetForSequenceClassification": _MPNET,
    "PPLXQwen3ContextualModel": _QWEN3,
    "PPLXQwen3Model": _QWEN3,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3ForSequenceClassification": _QWEN3,
    "Qwen3Model": _QWEN3,
    "RobertaModel": _ROBERTA,
    "RobertaForMaskedLM": _ROBERTA,
    "RobertaForSequenceClassification": _ROBERTA,
    "XLMRobertaModel": _ROBERTA,
    "XLMRobertaForMaskedLM": _ROBERTA,
    "XLMRobertaForSequenceClassification": _ROBERTA,
}
"""Name in the checkpoint → module:class of its encoder. Language-model heads are read past, others computed with."""

_HEADS = "rosebed.rose.heads.logits"

SCORING_HEADS = {
    "BertForSequenceClassification": f"{_HEADS}:BertHead",
    "CamembertForSequenceClassification": f"{_HEADS}:RobertaHead",
    "DistilBertForSequenceClassification": f"{_HEADS}:DistilBertHead",
    "MPNetForSequenceClassification": f"{_HEADS}:RobertaHead",
    "Qwen3ForCausalLM": f"{_HEADS}:YesNoHead",
    "Qwen3ForSequenceClassification": f"{_HEADS}:ScoreHead",
    "RobertaForSequenceClassification": f"{_HEADS}:RobertaHead",
    "XLMRobertaForSequenceClassification": f"{_HEADS}:RobertaHead",
}
"""Name in the checkpoint → module:class of what makes logits, where the model scores."""


def why_not_served(architecture: str) -> str | None:
    """What is wrong with `architecture`, if it is not served."""
    if architecture in ARCHITECTURES:
        return None
    return f"config.json: architecture {architecture!r} is not served; these are: {', '.join(ARCHITECTURES)}"
