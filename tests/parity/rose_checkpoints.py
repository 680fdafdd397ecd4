"""Small random checkpoints, written by transformers, and what transformers computes from them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec
from rosebed.core.types import Batch, Int32Array, Sequence, whole_span
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine

torch.set_num_threads(1)  # models this small gain nothing from threads, which wait for each other on a busy machine

VOCAB_SIZE = 300
MAX_LENGTH = 150

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
BERT = SIZES | {"max_position_embeddings": MAX_LENGTH}
ROBERTA = SIZES | {"max_position_embeddings": MAX_LENGTH + 2, "pad_token_id": 1, "type_vocab_size": 1}
DISTILBERT = {"vocab_size": VOCAB_SIZE, "dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}
QWEN3 = BERT | {"num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0}

CONFIGS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "bert": (transformers.BertConfig, BERT),
    "bert_relu": (transformers.BertConfig, BERT | {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "roberta": (transformers.RobertaConfig, ROBERTA),
    "roberta_pad_0": (transformers.RobertaConfig, ROBERTA | {"pad_token_id": 0, "max_position_embeddings": 151}),
    "xlm_roberta": (transformers.XLMRobertaConfig, ROBERTA),
    "camembert": (transformers.CamembertConfig, ROBERTA),
    "mpnet": (transformers.MPNetConfig, SIZES | {"max_position_embeddings": MAX_LENGTH + 2}),
    "bert_silu": (transformers.BertConfig, BERT | {"hidden_act": "silu"}),
    "bert_gelu_new": (transformers.BertConfig, BERT | {"hidden_act": "gelu_new"}),
    "distilbert": (transformers.DistilBertConfig, DISTILBERT | {"max_position_embeddings": MAX_LENGTH}),
    "qwen3": (transformers.Qwen3Config, QWEN3),
    "qwen3_rope_theta": (transformers.Qwen3Config, QWEN3 | {"rope_theta": 1e6}),
    "pplx": (transformers.Qwen3Config, QWEN3),
    "qwen3_not_causal": (transformers.Qwen3Config, QWEN3),
}
"""Name → transformers' configuration. Those it has no class for are Qwen3 with other words in config.json."""

_REWRITTEN: Mapping[str, Mapping[str, Any]] = {
    "pplx": {"model_type": "bidirectional_pplx_qwen3", "architectures": ["PPLXQwen3Model"]},
    "qwen3_not_causal": {"is_causal": False},
}


def random_model(config: Any, *, seed: int = 0) -> Any:
    """A transformers model with no parameter at a value that could hide an error (norms of 1, biases of 0)."""
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape) * 0.1 + (1 if is_norm else 0))
    return model


def write_checkpoint(name: str, folder: Path) -> Any:
    """Save the random model called `name` to `folder`; the model, to compare with."""
    config_class, sizes = CONFIGS[name]
    model = random_model(config_class(**sizes))
    model.save_pretrained(folder)
    rewrite_json(folder / "config.json", _REWRITTEN.get(name, {}))
    return model


def shard(folder: Path) -> None:
    """Split model.safetensors into several files and an index."""
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def rewrite_json(path: Path, changes: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def spec_of(folder: Path, **overrides: Any) -> ModelSpec:
    overrides.setdefault("pooling", "mean")
    return resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(**overrides))


def load(
    folder: Path, *, config: EngineConfig = EngineConfig(device="cpu", num_threads=1), **overrides: Any
) -> CpuEngine:
    engine = load_engine(spec_of(folder, **overrides), config)
    assert isinstance(engine, CpuEngine)
    return engine


def random_ids(length: int, *, seed: int = 0) -> Int32Array:
    # Not the padding ids: RoBERTa's reference derives positions from them.
    return np.random.default_rng(seed).integers(3, VOCAB_SIZE, length, dtype=np.int32)


def make_sequence(token_ids: Int32Array, **fields: Any) -> Sequence:
    return Sequence(token_ids=token_ids, pool_spans=fields.pop("pool_spans", whole_span(len(token_ids))), **fields)


def pack(*sequences: Sequence) -> Batch:
    return Batch.pack(sequences)


@torch.inference_mode()
def reference_hidden_states(name: str, model: Any, sequence: Sequence) -> torch.Tensor:
    """float32[num_tokens, hidden] by transformers, the sequence alone and unpadded."""
    inputs: dict[str, Any] = {"input_ids": torch.from_numpy(sequence.token_ids).long().unsqueeze(0)}
    if sequence.token_type_ids is not None:
        inputs["token_type_ids"] = torch.from_numpy(sequence.token_type_ids).long().unsqueeze(0)
    if name in _REWRITTEN:
        length = sequence.num_tokens
        inputs["attention_mask"] = {"full_attention": torch.zeros(1, 1, length, length)}
    return model(**inputs).last_hidden_state[0]


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest over rows of |actual - expected| / |expected|."""
    difference = (actual.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)
    return float(difference.max())


def cosine_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest over rows of 1 - cosine."""
    return float((1 - torch.cosine_similarity(actual.double(), expected.double(), dim=-1)).max())
