"""Small random checkpoints that score, written by transformers, and what transformers makes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rose_checkpoints import BERT, DISTILBERT, MAX_LENGTH, QWEN3, ROBERTA, SIZES

from rosebed.core.types import Float32Array, Sequence

NO, YES = 17, 42
"""Tokens that the language model answers with."""

_THREE = {"num_labels": 3}
_ONE = {"num_labels": 1}

CONFIGS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "bert": (transformers.BertConfig, BERT | _ONE),
    "bert_3": (transformers.BertConfig, BERT | _THREE),
    "roberta": (transformers.RobertaConfig, ROBERTA | _ONE),
    "xlm_roberta": (transformers.XLMRobertaConfig, ROBERTA | _ONE),
    "xlm_roberta_3": (transformers.XLMRobertaConfig, ROBERTA | _THREE),
    "camembert": (transformers.CamembertConfig, ROBERTA | _ONE),
    "mpnet": (transformers.MPNetConfig, SIZES | {"max_position_embeddings": MAX_LENGTH + 2} | _ONE),
    "distilbert": (transformers.DistilBertConfig, DISTILBERT | {"max_position_embeddings": MAX_LENGTH}),
    "qwen3": (transformers.Qwen3Config, QWEN3 | {"tie_word_embeddings": True}),
    "qwen3_untied": (transformers.Qwen3Config, QWEN3 | {"tie_word_embeddings": False}),
    "qwen3_score": (transformers.Qwen3Config, QWEN3 | _THREE),
}
"""Name → transformers' configuration. DistilBERT has transformers' own default, two labels."""
LANGUAGE_MODELS = frozenset({"qwen3", "qwen3_untied"})


def random_scorer(name: str) -> Any:
    """A transformers model with no parameter at a value that could hide an error."""
    config_class, sizes = CONFIGS[name]
    loader = (
        transformers.AutoModelForCausalLM
        if name in LANGUAGE_MODELS
        else transformers.AutoModelForSequenceClassification
    )
    torch.manual_seed(0)
    model = loader.from_config(config_class(**sizes), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            is_norm = "norm" in parameter_name.lower() and parameter_name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape) * 0.1 + (1 if is_norm else 0))
    return model


def write_scorer(name: str, folder: Path) -> Any:
    """Save the random model called `name` to `folder`, and where it answers, its words; the model, to compare with."""
    model = random_scorer(name)
    model.save_pretrained(folder)
    if name in LANGUAGE_MODELS:
        (folder / "tokenizer.json").write_text(f'{{"model": {{"vocab": {{"no": {NO}, "yes": {YES}}}}}}}')
    return model


@torch.inference_mode()
def reference_logits(name: str, model: Any, sequence: Sequence) -> Float32Array:
    """float32[num_labels] by transformers, the sequence alone and unpadded."""
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(sequence.token_ids).long().unsqueeze(0)}
    if sequence.token_type_ids is not None:
        inputs["token_type_ids"] = torch.from_numpy(sequence.token_type_ids).long().unsqueeze(0)
    logits = model(**inputs).logits[0]
    if name in LANGUAGE_MODELS:
        return (logits[-1, YES] - logits[-1, NO]).reshape(1).numpy()
    return logits.numpy().astype(np.float32)
