"""The arithmetic of `rosebed verify`: distances, ties, limits, golden files."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from rosebed.bench.verify.checks import Check, Vectors, check_vectors
from rosebed.bench.verify.comparison import Neighbours, compare_neighbours, cosine_distances, relative_errors
from rosebed.bench.verify.golden import read_golden, write_golden
from rosebed.bench.verify.reference import Reference
from rosebed.bench.verify.texts import MAX_COMPUTED_TOKENS, digest, verification_texts
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec
from rosebed.core.types import Float32Array

BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 16,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def spec_in(folder: Path, **changes: object) -> ModelSpec:
    """A model without weights."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(BERT | changes))
    return resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(pooling="mean"))


def npy() -> bytes:
    """One array, not a file of several."""
    buffer = BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def unit_rows(count: int, dim: int = 16) -> Float32Array:
    rows = np.random.default_rng(1).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_distances_and_errors() -> None:
    expected = np.array([[3, 4], [1, 0], [2, 0], [1, 1]], np.float32)
    actual = np.array([[6, 8], [0, 1], [-2, 0], [np.nan, 1]], np.float32)
    np.testing.assert_allclose(cosine_distances(actual, expected), [0, 1, 2, 1], atol=1e-6)
    np.testing.assert_allclose(relative_errors(actual, expected), [1, np.sqrt(2), 2, np.inf], rtol=1e-6)


def test_a_zero_vector_is_no_match() -> None:
    zero = np.zeros((1, 2), np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        assert cosine_distances(zero, np.ones((1, 2), np.float32)) == [1]
        assert relative_errors(np.ones((1, 2), np.float32), zero) > 1e30


def test_the_same_vectors_have_the_same_neighbours() -> None:
    rows = unit_rows(40)
    assert compare_neighbours(rows, rows, 1e-5) == Neighbours(agreement=1.0, beyond_ties=0)
    assert compare_neighbours(2 * rows, rows, 1e-5) == Neighbours(agreement=1.0, beyond_ties=0)


def test_fewer_texts_than_neighbours() -> None:
    rows = unit_rows(3)
    assert compare_neighbours(rows, rows, 1e-5) == Neighbours(agreement=1.0, beyond_ties=0)


def test_neighbours_that_swap_within_ties_are_seen_but_allowed() -> None:
    # Text 0 has eleven neighbours at nearly the same angle, of which ten count.
    angles = np.concatenate([[0.0], 0.5 + 1e-6 * np.arange(11)])
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float64)
    turned = angles.copy()
    turned[[1, 11]] = turned[[11, 1]]
    actual = np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float64)
    found = compare_neighbours(actual, expected, 1e-5)  # pyright: ignore[reportArgumentType]
    assert found.agreement < 1
    assert found.beyond_ties == 0


def test_other_neighbours_are_found() -> None:
    rows = unit_rows(40)
    found = compare_neighbours(rows[::-1].copy(), rows, 1e-5)
    assert found.agreement < 0.5
    assert found.beyond_ties > 100


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (Check(name="", value=1, limit=1), True),
        (Check(name="", value=1.1, limit=1), False),
        (Check(name="", value=1, limit=1, at_least=True), True),
        (Check(name="", value=0.9, limit=1, at_least=True), False),
        (Check(name="", value=1e9), True),
        (Check(name="", value=float("nan"), limit=1), False),
        (Check(name="", value=float("nan"), limit=1, at_least=True), False),
    ],
)
def test_limits(check: Check, passed: bool) -> None:
    assert check.passed is passed


def failed(together: Float32Array, alone: Float32Array, shuffled: Float32Array, expected: Float32Array) -> set[str]:
    vectors = Vectors(together=together, alone=alone, shuffled=shuffled)
    return {check.name for check in check_vectors(vectors, expected, 1e-3) if not check.passed}


def test_each_fault_fails_its_own_check() -> None:
    rows = unit_rows(30)
    off = rows.copy()
    off[3] = rows[4]
    assert failed(rows, rows, rows, rows) == set()
    assert failed(rows, off, rows, rows) == {"alone or in a batch, cosine distance"}
    assert failed(rows, rows, off, rows) == {"in another order, cosine distance"}
    assert failed(rows, rows, rows, off) >= {"cosine, least", "relative error, largest", "neighbours beyond ties"}
    # The right direction, twice too long.
    assert failed(2 * rows, 2 * rows, 2 * rows, rows) == {"relative error, largest"}
    off[3] = np.nan
    with np.errstate(invalid="ignore"):
        assert "cosine, least" in failed(off, off, off, rows)


def test_the_texts_ship_and_the_last_is_too_long() -> None:
    texts = verification_texts(256)
    assert len(texts) == len(set(texts)) == 96
    assert len(texts[-1].split()) == 306
    assert digest(texts) == digest(verification_texts(256)) != digest(verification_texts(257))
    scripts = {
        "Latin": "Ein Mann",
        "Han": "公告",
        "Kana": "イースト",
        "Arabic": "مرحبا",
        "Hangul": "환자",
        "Thai": "แสง",
    }
    assert all(any(sample in text for text in texts) for sample in scripts.values())


def reference() -> Reference:
    ids = tuple(np.arange(length, dtype=np.int32) for length in (3, MAX_COMPUTED_TOKENS + 1, 1))
    return Reference(source="a library", token_ids=ids, vectors=unit_rows(2))


def test_long_texts_are_not_computed() -> None:
    assert reference().computed == [0, 2]


def test_a_golden_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path, spec = tmp_path / "model.npz", spec_in(tmp_path / "model")
    write_golden(path, reference(), spec, ["a", "b", "c"])
    found = read_golden(path, spec, ["a", "b", "c"])
    assert found.source == "a library, from model.npz"
    np.testing.assert_array_equal(found.vectors, reference().vectors)
    assert [ids.tolist() for ids in found.token_ids] == [ids.tolist() for ids in reference().token_ids]
    assert found.vectors.dtype == np.float32


def test_a_golden_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path, spec = tmp_path / "model.npz", spec_in(tmp_path / "model")
    write_golden(path, reference(), spec, ["a", "b", "c"])
    with pytest.raises(ConfigError, match=r"--golden .*other texts"):
        read_golden(path, spec, ["a", "b", "d"])
    with pytest.raises(ConfigError, match=r"--golden .*another model"):
        read_golden(path, spec_in(tmp_path / "other", vocab_size=101), ["a", "b", "c"])


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 but no archive", npy()])
def test_what_is_no_golden_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--golden .*is not a golden file"):
        read_golden(path, spec_in(tmp_path / "model"), ["a"])


def test_a_golden_file_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--golden .*cannot be written"):
        write_golden(tmp_path / "none" / "model.npz", reference(), spec_in(tmp_path / "model"), ["a", "b", "c"])
