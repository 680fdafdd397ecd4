"""Small model folders written by hand, for tests of what their JSON means. No weights, no tokenizer."""

import json
from pathlib import Path
from typing import Any

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 384,
    "vocab_size": 30522,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
}
XLM_R: dict[str, Any] = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "hidden_size": 1024,
    "vocab_size": 250002,
    "type_vocab_size": 1,
    "max_position_embeddings": 8194,
    "pad_token_id": 1,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "vocab_size": 151669,
    "max_position_embeddings": 32768,
}
PPLX: dict[str, Any] = QWEN3 | {
    "architectures": ["PPLXQwen3Model"],
    "model_type": "bidirectional_pplx_qwen3",
    "vocab_size": 151936,
}


def modules(*entries: tuple[str, str]) -> list[dict[str, Any]]:
    """A modules.json of (class name, path) in order."""
    return [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (kind, path) in enumerate(entries)]


PIPELINE = modules(
    ("sentence_transformers.models.Transformer", ""),
    ("sentence_transformers.models.Pooling", "1_Pooling"),
    ("sentence_transformers.models.Normalize", "2_Normalize"),
)

MEAN = {
    "word_embedding_dimension": 384,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}


def write_folder(folder: Path, files: dict[str, Any]) -> Path:
    """Write each value as JSON (strings as they are) to its place under `folder`."""
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder


def minilm(**more: Any) -> dict[str, Any]:
    """The files of an all-MiniLM-L6-v2 folder, some replaced or added; None takes one away."""
    files: dict[str, Any] = {
        "config.json": BERT,
        "modules.json": PIPELINE,
        "1_Pooling/config.json": MEAN,
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "tokenizer_config.json": {"model_max_length": 512},
        "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.0.0"}},
    }
    return {name: value for name, value in (files | more).items() if value is not None}
