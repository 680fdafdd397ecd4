"""Every form a checkpoint comes in gives the same model."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rose_checkpoints import CONFIGS, random_model, shard, spec_of, write_checkpoint
from safetensors.torch import load_file, save_file

from rosebed.rose.loader import load_model
from rosebed.rose.ops import reference
from rosebed.rose.weights import LoadReport

Parameters = dict[str, torch.Tensor]


def load(folder: Path) -> Parameters:
    model = load_model(spec_of(folder), reference, device=torch.device("cpu"), dtype=torch.float32).model
    return dict(model.named_parameters())


def report_of(folder: Path) -> LoadReport:
    return load_model(spec_of(folder), reference, device=torch.device("cpu"), dtype=torch.float32).report


def assert_same(actual: Parameters, expected: Parameters) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_checkpoint("bert", folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "modèle with spaces")


def tensors_of(folder: Path) -> Parameters:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: Parameters) -> None:
    save_file(tensors, folder / "model.safetensors")


def test_fused_parameters_are_the_checkpoints_stacked(pristine: Path) -> None:
    tensors, parameters = tensors_of(pristine), load(pristine)
    parts = [tensors[f"encoder.layer.1.attention.self.{name}.weight"] for name in ("query", "key", "value")]
    assert torch.equal(parameters["encoder.layer.1.attention.self.qkv.weight"], torch.cat(parts))


def test_shards_equal_one_file(pristine: Path, folder: Path) -> None:
    shard(folder)
    assert_same(load(folder), load(pristine))


def test_index_decides_over_a_stray_file(pristine: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard(folder)
    rewrite(folder, {"embeddings.word_embeddings.weight": torch.zeros(1)})
    with caplog.at_level(logging.WARNING):
        assert_same(load(folder), load(pristine))
    assert "ignored model.safetensors, which no index lists" in caplog.text


def test_symlinked_files(pristine: Path, tmp_path: Path) -> None:
    for path in pristine.iterdir():
        (tmp_path / path.name).symlink_to(path)
    assert_same(load(tmp_path), load(pristine))


@pytest.mark.parametrize("legacy", [False, True])
def test_pickle(pristine: Path, folder: Path, legacy: bool) -> None:
    torch.save(tensors_of(folder), folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    (folder / "model.safetensors").unlink()
    assert_same(load(folder), load(pristine))


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_prefix(pristine: Path, folder: Path, prefix: str) -> None:
    rewrite(folder, {prefix + name: tensor for name, tensor in tensors_of(folder).items()})
    assert_same(load(folder), load(pristine))


@pytest.mark.parametrize(
    ("name", "model_class"),
    [
        ("bert", transformers.BertForMaskedLM),
        ("bert", transformers.BertForPreTraining),
        ("roberta", transformers.RobertaForMaskedLM),
        ("xlm_roberta", transformers.XLMRobertaForMaskedLM),
        ("camembert", transformers.CamembertForMaskedLM),
        ("mpnet", transformers.MPNetForMaskedLM),
        ("distilbert", transformers.DistilBertForMaskedLM),
        ("qwen3", transformers.Qwen3ForCausalLM),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_language_model_heads_are_read_past(name: str, model_class: Any, tied: bool, tmp_path: Path) -> None:
    config_class, sizes = CONFIGS[name]
    model = model_class(config_class(**sizes, tie_word_embeddings=tied))
    encoder = model.base_model
    encoder.load_state_dict(random_model(encoder.config).state_dict(), strict=False)
    model.save_pretrained(tmp_path / "with_head")
    encoder.save_pretrained(tmp_path / "bare")
    assert_same(load(tmp_path / "with_head"), load(tmp_path / "bare"))


def test_float16_and_bfloat16_files_are_converted(folder: Path) -> None:
    halves = {name: tensor.bfloat16() for name, tensor in tensors_of(folder).items()}
    rewrite(folder, halves)
    expected = halves["embeddings.word_embeddings.weight"].float()
    assert torch.equal(load(folder)["embeddings.word_embeddings.weight"], expected)


def test_report(folder: Path) -> None:
    report = report_of(folder)
    assert report.num_bytes == sum(p.nbytes for p in load(folder).values())
    assert report.ignored == ("pooler.dense.bias", "pooler.dense.weight")
    assert report.peak_rss_bytes > report.num_bytes
    assert report.seconds > 0
