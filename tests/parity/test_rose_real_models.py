"""Real checkpoints, text to vector, against sentence-transformers in float32."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import rose_assets
from rose_checkpoints import load, pack, spec_of
from rose_texts import varied_texts
from sentence_transformers import SentenceTransformer

from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.rose.config import DtypeName, EngineConfig
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

PAIR = ["A man is playing a guitar on stage.", "Someone performs music with a guitar."]


@dataclass(frozen=True)
class Case:
    """A model, texts, and what sentence-transformers makes of them."""

    folder: Path
    texts: list[str]
    expected: Float32Array  # [num_texts, dim]

    def embed(self, texts: list[str], *, batch_size: int, dtype: DtypeName = "float32") -> Float32Array:
        engine = load(self.folder, pooling=None, config=EngineConfig(device="cpu", dtype=dtype, num_threads=1))
        sequences = self._sequences(texts)
        parts: list[Float32Array] = []
        for start in range(0, len(sequences), batch_size):
            lazy = engine.step(pack(*sequences[start : start + batch_size]))
            parts.append(lazy.result().output(OutputKind.DENSE).copy())
            lazy.release()
        return np.concatenate(parts)

    def _sequences(self, texts: list[str]) -> list[Sequence]:
        tokenizer = TextTokenizer.load(spec_of(self.folder, pooling=None))
        return [
            Sequence(token_ids=one.token_ids, token_type_ids=one.token_type_ids, pool_spans=one.pool_spans)
            for one in tokenizer.tokenize(texts, TokenizeOptions(truncate=True))
        ]


@pytest.fixture(scope="module", params=["minilm", pytest.param("mpnet", marks=pytest.mark.slow)])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = getattr(rose_assets, request.param)(tmp_path_factory.mktemp(request.param))
    # A token of the larger model takes ten times as long: it gets nine of the mixtures.
    texts = varied_texts(100 if request.param == "minilm" else 52)
    reference = SentenceTransformer(str(folder), device="cpu")
    return Case(folder, texts, np.asarray(reference.encode(texts, batch_size=16)))


def cosines(actual: Float32Array, expected: Float32Array) -> Float32Array:
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    return (actual * expected).sum(1) / norms


@pytest.mark.parametrize("batch_size", [1, 64])
def test_vectors_equal_sentence_transformers(case: Case, batch_size: int) -> None:
    actual = case.embed(case.texts, batch_size=batch_size)
    assert actual.shape == case.expected.shape
    assert cosines(actual, case.expected).min() > 1 - 1e-5
    np.testing.assert_allclose(actual, case.expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-6)


def test_bfloat16(case: Case) -> None:
    assert cosines(case.embed(case.texts, batch_size=64, dtype="bfloat16"), case.expected).min() > 1 - 1e-3


def test_a_known_pair(case: Case) -> None:
    known = {"all-mpnet-base-v2": 0.6262}.get(case.folder.name, 0.6861)
    first, second = case.embed(PAIR, batch_size=2)
    assert float(first @ second) == pytest.approx(known, abs=5e-5)
