"""The reference of `rosebed verify` for folders that the library does not read as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from rosebed import Embedder
from rosebed.bench.verify.checks import verify
from rosebed.core.model_spec import ModelOverrides
from rosebed.rose.config import EngineConfig

PPLX = {"model_type": "bidirectional_pplx_qwen3", "architectures": ["PPLXQwen3Model"]}


def write_model(folder: Path, changes: dict[str, Any]) -> Path:
    """A small random Qwen3 whose tokens are bytes, without modules.json."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, intermediate_size=96, max_position_embeddings=512,
    )  # fmt: skip
    transformers.Qwen3Model(config).save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **changes}))
    alphabet = {char: index for index, char in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(alphabet, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("changes", "overrides"),
    [(PPLX, ModelOverrides()), ({}, ModelOverrides()), ({}, ModelOverrides(pooling="mean"))],
    ids=["pplx", "qwen3", "qwen3-mean"],
)
def test_a_folder_without_pipeline_is_right(changes: dict[str, Any], overrides: ModelOverrides, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", changes)
    with Embedder(folder, overrides=overrides, config=EngineConfig(device="cpu", num_threads=2)) as embedder:
        report = verify(embedder)
    assert [check.name for check in report.checks if not check.passed] == []
    assert report.num_computed == report.num_texts == 96
