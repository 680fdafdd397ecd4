"""`rosebed verify` on cross-encoders: right ones pass, spoilt ones do not. Figures of logits made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from bench_live import MINILM
from test_bench_verify_models import failed, values, verify

from rosebed.bench.verify.scores import check_logits

_SIZES: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.3,
    "num_labels": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross-encoder")
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(transformers.BertConfig(**_SIZES)).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    return folder


def test_a_cross_encoder_is_right(folder: Path) -> None:
    exit_code, report, stderr = verify(folder)
    assert (exit_code, failed(report)) == (0, set()), stderr
    assert (report["num_texts"], report["tolerance"]) == (96, 1e-5)
    assert values(report)["relative error of a logit, largest"] < 1e-5
    assert values(report)["pairs with other token ids"] == 0


def test_what_has_no_reference(folder: Path, tmp_path: Path) -> None:
    exit_code, _, stderr = verify(folder, "--golden", str(tmp_path / "golden.npz"))
    assert exit_code == 2
    assert "--golden holds vectors, and this model scores" in stderr


def test_figures() -> None:
    expected = np.array([[4.0], [1.0], [-2.0]], np.float32)
    right = check_logits(expected, expected, expected, 1e-5)
    assert all(check.passed for check in right)
    swapped = np.array([[1.0], [4.0], [-2.0]], np.float32)
    found = {check.name: check.value for check in check_logits(swapped, expected, expected, 1e-5)}
    assert found == {
        "relative error of a logit, largest": 0.75,
        "pairs in another order, beyond ties": 1,
        "alone or in a batch, relative difference": 0.75,
    }
    spoilt = check_logits(np.full_like(expected, np.nan), expected, expected, 1e-5)
    assert not spoilt[0].passed
