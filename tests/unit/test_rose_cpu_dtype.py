"""When `auto` is bfloat16 on a CPU: a matrix unit, and a note that these very files were verified."""

import os
from pathlib import Path

import pytest
from core_folders import minilm, write_folder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.rose.config import EngineConfig, resolve_config
from rosebed.rose.cpu_dtype import default_dtype, has_amx, note_verified


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    folder = write_folder(tmp_path / "model", minilm() | {"model.safetensors": "weights"})
    return resolve_model_spec(CheckpointFiles.read(folder))


def cpu_info(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: fpu {flags} avx512f\n\nprocessor\t: 1\n")
    return path


def test_amx_is_found_by_the_processor_s_flags(tmp_path: Path) -> None:
    assert has_amx(cpu_info(tmp_path, "amx_tile amx_int8 amx_bf16"))
    assert not has_amx(cpu_info(tmp_path, "amx_tile avx512_bf16"))
    assert not has_amx(tmp_path / "nothing")


def test_a_verified_model_is_bfloat16_where_there_is_amx(spec: ModelSpec, tmp_path: Path) -> None:
    amx, notes = cpu_info(tmp_path, "amx_tile amx_bf16"), tmp_path / "notes"
    assert default_dtype(spec, cpu_info=amx, folder=notes) == "float32"
    note_verified(spec, 0.9995, folder=notes)
    assert default_dtype(spec, cpu_info=amx, folder=notes) == "bfloat16"
    assert default_dtype(spec, cpu_info=cpu_info(tmp_path, "avx2"), folder=notes) == "float32"


def test_a_model_that_fails_later_is_float32_again(spec: ModelSpec, tmp_path: Path) -> None:
    amx, notes = cpu_info(tmp_path, "amx_tile amx_bf16"), tmp_path / "notes"
    note_verified(spec, 0.9995, folder=notes)
    note_verified(spec, 0.998, folder=notes)
    assert default_dtype(spec, cpu_info=amx, folder=notes) == "float32"


def test_other_weights_are_not_verified(spec: ModelSpec, tmp_path: Path) -> None:
    amx, notes = cpu_info(tmp_path, "amx_tile amx_bf16"), tmp_path / "notes"
    note_verified(spec, 0.9995, folder=notes)
    os.utime(spec.folder / "model.safetensors", ns=(1, 1))
    assert default_dtype(spec, cpu_info=amx, folder=notes) == "float32"


def test_only_auto_on_a_cpu_asks() -> None:
    def choose(device: str, dtype: str) -> str:
        config = EngineConfig(device=device, dtype=dtype)  # pyright: ignore[reportArgumentType]
        return resolve_config(config, "bert", has_cuda=True, cpu_dtype=lambda: "bfloat16").dtype

    assert choose("cpu", "auto") == "bfloat16"
    assert choose("cpu", "float32") == "float32"
    assert choose("cuda", "float32") == "float32"
