"""The rows of `rosebed inspect`: what was detected, and from which file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_folders import BERT, PPLX
from safetensors.numpy import save_file
from text_models import WORDS, Files, bert_folder, qwen_folder

from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.text.inspect import inspect_model


def rows(folder: Path, **overrides: Any) -> dict[str, tuple[str, str]]:
    return {row.field: (row.value, row.source) for row in inspect_model(folder, ModelOverrides(**overrides))}


def write_weights(path: Path, **tensors: Any) -> None:
    save_file({name: np.zeros(shape, dtype) for name, (shape, dtype) in tensors.items()}, str(path))


def test_a_sentence_transformers_folder(tmp_path: Path) -> None:
    write_weights(bert_folder(tmp_path) / "model.safetensors", a=((1000, 300), "f4"), ids=((1, 512), "i8"))
    found = rows(tmp_path)
    assert len(found.pop("fingerprint")[0]) == 16
    assert found == {
        "architecture": ("BertModel (bert)", "config.json"),
        "dtype": ("float32 (0.3 M)", "model.safetensors"),
        "dimensions": ("384", "config.json"),
        "fewer dimensions": ("no", "default for bert"),
        "pooling": ("mean", "1_Pooling/config.json"),
        "prompt in pooling": ("yes", "1_Pooling/config.json"),
        "normalize": ("yes", "modules.json"),
        "max length": ("256 tokens", "sentence_bert_config.json"),
        "tokenizer": ("WordPiece, 16 tokens, by tokenizers", "tokenizer.json"),
        "special tokens": ("[CLS] … [SEP]", "tokenizer.json"),
        "lower the text": ("no", "sentence_bert_config.json"),
        "default prompt": ("none", "default"),
    }


def test_flags_are_named(tmp_path: Path) -> None:
    found = rows(bert_folder(tmp_path), pooling="cls", max_length=9999, matryoshka="any")
    assert found["pooling"] == ("cls", "--pooling")
    assert found["max length"] == ("512 tokens", "--max-length, clamped to config.json")
    assert found["fewer dimensions"] == ("yes", "--matryoshka any")


def test_prompts_dense_layers_and_sizes(tmp_path: Path) -> None:
    entries = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    files: Files = {
        "config.json": BERT | {"vocab_size": len(WORDS), "matryoshka_dimensions": [32, 64]},
        "modules.json": [
            {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(entries)
        ],
        "2_Dense/config.json": {"in_features": 384, "out_features": 128},
        "config_sentence_transformers.json": {
            "prompts": {"query": "Frage:\n", "document": "§ "},
            "default_prompt_name": "document",
        },
    }
    found = rows(bert_folder(tmp_path, files))
    assert found["dimensions"] == ("128", "2_Dense/config.json")
    assert found["dense layer"] == ("384 → 128, Tanh", "2_Dense/config.json")
    assert found["normalize"] == ("no", "modules.json")
    assert found["fewer dimensions"] == ("32, 64", "config.json")
    assert found["prompt query"] == ('"Frage:\\n"', "config_sentence_transformers.json")
    assert found["prompt document"] == ('"§ "', "config_sentence_transformers.json")
    assert found["default prompt"] == ("document", "config_sentence_transformers.json")


def test_a_bare_folder_says_what_is_assumed(tmp_path: Path) -> None:
    config = PPLX | {"vocab_size": 257, "dtype": "float32"}
    (qwen_folder(tmp_path, appends_eos=False) / "config.json").write_text(json.dumps(config))
    found = rows(tmp_path)
    assert found["architecture"] == ("PPLXQwen3Model (bidirectional_pplx_qwen3)", "config.json")
    assert found["pooling"] == ("mean", "default for bidirectional_pplx_qwen3")
    assert found["normalize"] == ("no", "default for bidirectional_pplx_qwen3")
    assert found["dtype"] == ("float32", "config.json")
    assert found["special tokens"] == ("…", "tokenizer.json")
    assert found["tokenizer"] == ("BPE, 257 tokens, by fastokens", "tokenizer.json")


def test_shards_are_summed(tmp_path: Path) -> None:
    bert_folder(tmp_path)
    write_weights(tmp_path / "one.safetensors", a=((2_000_000,), "f2"))
    write_weights(tmp_path / "two.safetensors", b=((400, 1000), "f2"), c=((100_000,), "f4"))
    write_weights(tmp_path / "model.safetensors", stray=((5_000_000,), "f4"))
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert rows(tmp_path)["dtype"] == ("float16 (2.4 M), float32 (0.1 M)", "model.safetensors.index.json")


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 100, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_weights_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (bert_folder(tmp_path) / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        rows(tmp_path)


def test_missing_shards_and_malformed_indexes(tmp_path: Path) -> None:
    path = bert_folder(tmp_path) / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"gone\.safetensors cannot be read"):
        rows(tmp_path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="weight_map should map tensors to files, not be None"):
        rows(tmp_path)


def test_what_cannot_be_served_is_refused_as_loading_would(tmp_path: Path) -> None:
    (bert_folder(tmp_path) / "modules.json").unlink()
    with pytest.raises(CheckpointError, match="give --pooling"):
        rows(tmp_path)
    with pytest.raises(ConfigError, match="--pooling should be"):
        rows(tmp_path, pooling="max")


def test_a_scorer(tmp_path: Path) -> None:
    config = BERT | {
        "vocab_size": len(WORDS),
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "no", "1": "yes"},
    }
    (bert_folder(tmp_path, {"config.json": config}) / "modules.json").unlink()
    found = rows(tmp_path)
    assert found["scores by"] == ("classifier", "config.json")
    assert found["labels"] == ("no, yes", "config.json")
    assert found["activation"] == ("identity", "default")
    assert "pooling" not in found
