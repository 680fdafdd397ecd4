"""`rosebed verify` on real and on spoilt models: what passes, what does not, and the exit code."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_live import MINILM
from safetensors.numpy import load_file, save_file

from rosebed.bench.verify.golden import read_golden, write_golden
from rosebed.bench.verify.reference import Reference
from rosebed.bench.verify.texts import verification_texts
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.core.types import Float32Array

Weights = dict[str, Float32Array]


def verify(model: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the report (empty if there is none), and stderr."""
    command = [sys.executable, "-m", "rosebed", "verify", str(model), "--num-threads", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr


def failed(report: dict[str, Any]) -> set[str]:
    return {check["name"] for check in report["checks"] if not check["passed"]}


def values(report: dict[str, Any]) -> dict[str, float]:
    return {check["name"]: check["value"] for check in report["checks"]}


def spec() -> ModelSpec:
    return resolve_model_spec(CheckpointFiles.read(MINILM))


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM's reference, as the first `verify` wrote it."""
    path = tmp_path_factory.mktemp("golden") / "minilm.npz"
    exit_code, report, stderr = verify(MINILM, "--golden", str(path))
    assert exit_code == 0, stderr
    assert report["reference"].startswith("sentence-transformers ")
    assert (report["num_texts"], report["num_computed"], report["tolerance"]) == (96, 96, 1e-5)
    return path


def test_minilm_is_right_against_what_the_reference_once_said(golden: Path) -> None:
    exit_code, report, _ = verify(MINILM, "--golden", str(golden))
    assert (exit_code, report["passed"], failed(report)) == (0, True, set())
    assert report["reference"].endswith("from minilm.npz")
    found = values(report)
    assert found["cosine, least"] > 1 - 1e-6
    assert found["relative error, largest"] < 1e-4
    assert found["top-10 neighbours that agree"] > 0.99
    assert found["texts with other token ids"] == 0


def test_half_precision_has_its_own_tolerance(golden: Path) -> None:
    exit_code, report, _ = verify(MINILM, "--golden", str(golden), "--dtype", "bfloat16")
    assert (exit_code, report["tolerance"], report["dtype"]) == (0, 1e-3, "bfloat16")
    exit_code, report, _ = verify(MINILM, "--golden", str(golden), "--dtype", "bfloat16", "--tolerance", "1e-6")
    assert exit_code == 1
    assert {"cosine, least", "relative error, largest"} <= failed(report)


def spoilt(folder: Path, spoil: Callable[[Weights], None]) -> Path:
    """MiniLM with other weights."""
    shutil.copytree(MINILM, folder, copy_function=lambda a, b: Path(b).symlink_to(a))
    weights = load_file(MINILM / "model.safetensors")
    spoil(weights)
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors")
    return folder


def perturb(weights: Weights) -> None:
    """One matrix of one layer, by two percent of its size."""
    matrix = weights["encoder.layer.3.output.dense.weight"]
    noise = np.random.default_rng(0).standard_normal(matrix.shape).astype(np.float32)
    matrix += 0.02 * matrix.std() * noise


def test_a_perturbed_model_fails(golden: Path, tmp_path: Path) -> None:
    exit_code, report, stderr = verify(spoilt(tmp_path / "model", perturb), "--golden", str(golden))
    assert (exit_code, report["passed"]) == (1, False), stderr
    assert {"cosine, least", "relative error, largest"} <= failed(report)
    # It is consistently wrong: alone, together and in any order.
    assert "alone or in a batch, cosine distance" not in failed(report)


def test_other_token_ids_fail(golden: Path, tmp_path: Path) -> None:
    texts = verification_texts(256)
    right = read_golden(golden, spec(), texts)
    ids = [own.copy() for own in right.token_ids]
    ids[5][1] += 1
    path = tmp_path / "other.npz"
    write_golden(path, Reference(source="s", token_ids=tuple(ids), vectors=right.vectors), spec(), texts)
    exit_code, report, _ = verify(MINILM, "--golden", str(path))
    assert (exit_code, failed(report), report["other_ids"]) == (1, {"texts with other token ids"}, [texts[5]])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--tolerance", "2"), "--tolerance should lie in"),
        (("--golden", __file__), "is not a golden file"),
        (("--device", "tpu"), "--device should be"),
    ],
)
def test_what_is_wrong_with_the_command_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    exit_code, report, stderr = verify(MINILM, *arguments)
    assert (exit_code, report) == (2, {})
    assert says in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
