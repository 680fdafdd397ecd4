"""Bad checkpoints are refused before anything is served; the message names the fault and what to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rose_checkpoints import rewrite_json, shard, spec_of, write_checkpoint
from safetensors.torch import load_file, save_file

from rosebed.core.errors import CheckpointError
from rosebed.rose.loader import load_model
from rosebed.rose.ops import reference
from rosebed.rose.weights import peak_rss_bytes


def load(folder: Path) -> None:
    load_model(spec_of(folder), reference, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_checkpoint("bert", folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pristine, tmp_path / "bert")


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")


def test_missing_tensor(folder: Path) -> None:
    tensors = tensors_of(folder)
    tensors["encoder.layer.0.output.dense.wight"] = tensors.pop("encoder.layer.0.output.dense.weight")
    rewrite(folder, tensors)
    with pytest.raises(CheckpointError, match=r"lacks tensors .* encoder\.layer\.0\.output\.dense\.weight; .*wight"):
        load(folder)


def test_unexpected_tensor(folder: Path) -> None:
    rewrite(folder, tensors_of(folder) | {"classifier.weight": torch.zeros(2, 64)})
    with pytest.raises(CheckpointError, match=r"does not compute with: classifier\.weight; serving it without"):
        load(folder)


def test_missing_shard(folder: Path) -> None:
    shard(folder)
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(CheckpointError, match=f"lacks the shard {lost.name}, which .* lists: download it again"):
        load(folder)


def test_tensor_missing_from_its_shard(folder: Path) -> None:
    shard(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["encoder.layer.9.output.dense.weight"] = next(iter(index["weight_map"].values()))
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"lacks the tensor encoder\.layer\.9\.output\.dense\.weight"):
        load(folder)


@pytest.mark.parametrize("content", ['{"weight_map": []}', "{}", '{"weight_map": {"a": 1}}'])
def test_malformed_index(folder: Path, content: str) -> None:
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="has no 'weight_map'"):
        load(folder)


@pytest.mark.parametrize("shape", [(300, 32), (299, 64), (301, 64), (64,), ()])
def test_wrong_shape(folder: Path, shape: tuple[int, ...]) -> None:
    name = "embeddings.word_embeddings.weight"
    rewrite(folder, tensors_of(folder) | {name: torch.zeros(shape)})
    with pytest.raises(CheckpointError, match=r"word_embeddings.* config\.json asks for \[300, 64\]"):
        load(folder)


def test_wrong_shape_of_a_fused_part(folder: Path) -> None:
    name = "encoder.layer.0.attention.self.value.weight"
    rewrite(folder, tensors_of(folder) | {name: torch.zeros(32, 64)})
    with pytest.raises(CheckpointError, match=r"self\.value\.weight has shape \[32, 64\], but .* asks for \[64, 64\]"):
        load(folder)


@pytest.mark.parametrize("leaf", ["weight", "bias"])
def test_rows_of_a_fused_part_that_another_part_makes_up_for(folder: Path, leaf: str) -> None:
    names = [f"encoder.layer.0.attention.self.{part}.{leaf}" for part in ("query", "key")]
    tensors = tensors_of(folder)
    both = torch.cat([tensors[name] for name in names])
    rewrite(folder, tensors | {names[0]: both[:65].clone(), names[1]: both[65:].clone()})
    with pytest.raises(CheckpointError, match=rf"self\.query\.{leaf} has shape \[65.* asks for \[64"):
        load(folder)


def test_rows_of_gate_that_up_makes_up_for(tmp_path: Path) -> None:
    write_checkpoint("qwen3", tmp_path)
    names = [f"layers.1.mlp.{part}_proj.weight" for part in ("gate", "up")]
    tensors = tensors_of(tmp_path)
    both = torch.cat([tensors[name] for name in names])
    rewrite(tmp_path, tensors | {names[0]: both[:97].clone(), names[1]: both[97:].clone()})
    with pytest.raises(CheckpointError, match=r"gate_proj\.weight has shape \[97, 64\].* asks for \[96, 64\]"):
        load(tmp_path)


def test_integer_weights(folder: Path) -> None:
    name = "encoder.layer.0.output.dense.weight"
    rewrite(folder, tensors_of(folder) | {name: torch.zeros(64, 96, dtype=torch.int8)})
    with pytest.raises(CheckpointError, match=r"output\.dense\.weight holds torch\.int8; only floats"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"])
def test_not_safetensors(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged or a Git LFS pointer .*: download it again"):
        load(folder)


def test_cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="damaged"):
        load(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"holds none of model\.safetensors, .*pytorch_model\.bin: download"):
        load(folder)


class Code:
    def __reduce__(self) -> Any:
        return print, ("this must never run",)


@pytest.mark.parametrize(
    "content",
    [
        {"weight": Code()},
        [torch.zeros(1)],
        {"a": 1},
        {1: torch.zeros(1)},
        {"a": torch.zeros(2, 2).to_sparse()},
        {"a": torch.zeros(1, device="meta")},
    ],
)
def test_pickle_of_other_things(folder: Path, content: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="convert it to safetensors"):
        load(folder)
    assert "never run" not in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 1, 100, 5_000, -1])
def test_pickle_cut_short(folder: Path, keep: int) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(tensors_of(folder), path)
    (folder / "model.safetensors").unlink()
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="damaged or holds more than tensors"):
        load(folder)


def test_pickle_that_is_text(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(CheckpointError, match="damaged or holds more than tensors"):
        load(folder)


def test_unknown_architecture(folder: Path) -> None:
    rewrite_json(folder / "config.json", {"architectures": ["MambaModel"]})
    with pytest.raises(CheckpointError, match="'MambaModel' is not served; these are: BertModel"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("hidden_act", "xielu"), ("position_embedding_type", "relative_key"), ("is_decoder", True)]
)
def test_unserved_setting(folder: Path, key: str, value: Any) -> None:
    rewrite_json(folder / "config.json", {key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: {key} {value!r} is not served"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e6}),
        ("use_sliding_window", True),
        ("layer_types", ["sliding_attention"]),
        ("hidden_act", "gelu"),
    ],
)
def test_unserved_setting_of_qwen3(tmp_path: Path, key: str, value: Any) -> None:
    write_checkpoint("qwen3", tmp_path)
    rewrite_json(tmp_path / "config.json", {key: value})
    with pytest.raises(
        CheckpointError, match=r"config\.json: (rope_type|use_sliding_window|layer_types|hidden_act) .* is not served"
    ):
        load(tmp_path)


@pytest.mark.parametrize("value", ["1e-5", 0, True])
def test_a_norm_epsilon_that_is_none(folder: Path, value: Any) -> None:
    rewrite_json(folder / "config.json", {"layer_norm_eps": value})
    with pytest.raises(CheckpointError, match=r"config\.json: layer_norm_eps should be a positive number, not"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", []),
        ("num_hidden_layers", 10**6),
        ("num_attention_heads", 10**9),
        ("intermediate_size", 10**9),
        ("max_position_embeddings", 10**9),
        ("vocab_size", 10**9),
        ("type_vocab_size", -1),
        ("layer_norm_eps", 1e300),
        ("layer_norm_eps", float("inf")),
        ("layer_norm_eps", float("nan")),
    ],
)
def test_a_value_that_no_model_has(folder: Path, key: str, value: Any) -> None:
    rewrite_json(folder / "config.json", {key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: {key} should be"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("head_dim", 10**9),
        ("head_dim", 7),
        ("is_causal", 1),
        ("layer_types", 5),
        ("max_position_embeddings", 10**9),
        ("num_key_value_heads", []),
        ("rope_parameters", 5),
        ("rope_theta", 1e300),
    ],
)
def test_a_value_that_no_qwen3_has(tmp_path: Path, key: str, value: Any) -> None:
    write_checkpoint("qwen3", tmp_path)
    rewrite_json(tmp_path / "config.json", {"rope_parameters": None, key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: ({key} should be|heads are 7 wide)"):
        load(tmp_path)


@pytest.mark.parametrize(("key", "value"), [("vocab_size", 1 << 24), ("intermediate_size", 1 << 20)])
def test_sizes_are_compared_before_anything_is_allocated(folder: Path, key: str, value: int) -> None:
    rewrite_json(folder / "config.json", {key: value})
    before = peak_rss_bytes()
    with pytest.raises(CheckpointError, match="belong to different models"):
        load(folder)
    assert peak_rss_bytes() - before < 64 << 20


@pytest.mark.parametrize("file", ["../bert/model.safetensors", "/model.safetensors", "a\0b"])
def test_a_shard_outside_the_folder(folder: Path, file: str) -> None:
    index = {"weight_map": dict.fromkeys(tensors_of(folder), file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json: shard .* leads out of the model folder"):
        load(folder)


def test_heads_that_do_not_divide(folder: Path) -> None:
    rewrite_json(folder / "config.json", {"num_attention_heads": 5})
    with pytest.raises(CheckpointError, match="5 heads do not divide hidden_size 64"):
        load(folder)
