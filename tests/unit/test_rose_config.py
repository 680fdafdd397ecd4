"""Engine settings: what `auto` means, and which values are refused. No torch."""

import subprocess
import sys

import pytest

from rosebed.core.errors import ConfigError
from rosebed.rose.config import EngineConfig, check_config, resolve_config


@pytest.mark.parametrize(
    ("device", "dtype", "has_cuda", "expected"),
    [
        ("auto", "auto", False, ("cpu", "float32")),
        ("auto", "auto", True, ("cuda", "bfloat16")),
        ("cpu", "auto", True, ("cpu", "float32")),
        ("cpu", "bfloat16", False, ("cpu", "bfloat16")),
        ("cuda:1", "float16", True, ("cuda:1", "float16")),
        ("auto", "float8", True, ("cuda", "float8")),
        ("auto", "int8", False, ("cpu", "int8")),
    ],
)
def test_auto(device: str, dtype: str, has_cuda: bool, expected: tuple[str, str]) -> None:
    config = EngineConfig(device=device, dtype=dtype)  # pyright: ignore[reportArgumentType]
    resolved = resolve_config(config, "bert", has_cuda=has_cuda)
    assert (resolved.device, resolved.dtype) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (EngineConfig(device="tpu"), "--device should be auto, cpu, cuda or cuda:N, not 'tpu'"),
        (EngineConfig(device="cuda:x"), "--device should be"),
        (EngineConfig(device="cpu:0"), "--device should be"),
        (EngineConfig(device="cuda", dtype="float16"), "float16 is not served on qwen3, which overflows it"),
        (EngineConfig(device="cpu", dtype="float16"), "float16 is not served on the CPU"),
        (
            EngineConfig(device="cpu", dtype="float8"),
            "--dtype float8 is not served on the CPU: take bfloat16 or float32",
        ),
        (EngineConfig(dtype="int8"), "--dtype int8 is not served on a GPU: take float8 or bfloat16"),
        (
            EngineConfig(device="cpu", cpu_backend="openvino", dtype="int8"),
            "--dtype int8 is not served by --cpu-backend openvino: take torch or auto",
        ),
        (
            EngineConfig(device="cpu", cpu_backend="openvino", attention="sdpa"),
            "--attention sdpa is not served by --cpu-backend openvino: take torch or auto",
        ),
        (EngineConfig(cpu_backend="onnx"), "--cpu-backend should be auto, torch or openvino, not 'onnx'"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(graph_memory_mb=0), "--graph-memory-mb should be at least 1, not 0"),
        (EngineConfig(tune_table=3), "--tune-table should be str, not 3"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(dtype="fp16"), "--dtype should be auto, .* or int8, not 'fp16'"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(graphs="none"), "--graphs should be full, lazy or off, not 'none'"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(num_threads="4"), "--num-threads should be int, not '4'"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(device=0), "--device should be str, not 0"),  # pyright: ignore[reportArgumentType]
        (EngineConfig(token_budget=0), "--token-budget should be at least 1, not 0"),
        (EngineConfig(num_threads=-1), "--num-threads should be at least 1, not -1"),
    ],
)
def test_refusals(config: EngineConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_config(config, "qwen3", has_cuda=True)


def test_no_cuda_device() -> None:
    with pytest.raises(ConfigError, match="--device cuda:0: torch sees no CUDA device here"):
        resolve_config(EngineConfig(device="cuda:0"), "bert", has_cuda=False)


def test_importing_the_door_does_not_import_torch() -> None:
    code = "import sys, rosebed.rose, rosebed.rose.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_attention_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"--attention should be auto, sdpa, triton, .* fa3 or fa4, not 'fa5'"):
        check_config(EngineConfig(attention="fa5"))
