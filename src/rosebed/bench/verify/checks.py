"""One model verified: its vectors against the reference, against themselves alone, and in another order."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

from rosebed.bench.verify.comparison import TOLERANCES, compare_neighbours, cosine_distances, relative_errors
from rosebed.bench.verify.golden import read_golden, write_golden
from rosebed.bench.verify.reference import Reference, compute_reference
from rosebed.bench.verify.texts import verification_texts
from rosebed.core.engine import EngineInfo
from rosebed.core.extras import needs_extra
from rosebed.core.model_spec import ModelSpec
from rosebed.core.types import Float32Array, Int32Array

with needs_extra("rosebed verify", "serve"):
    from rosebed.embedder import Embedder
    from rosebed.text.prompts import resolve_prompt
    from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

LEAST_COSINE = "cosine, least"
"""Name of a check."""

Watch = Callable[[str], None]
"""Is told what is being done."""

SHUFFLE_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure and what it may be."""

    name: str
    value: float
    limit: float | None = None
    """None for a figure that is shown only."""
    at_least: bool = False
    """Whether `limit` is the least instead of the most."""

    @property
    def passed(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found of one model."""

    info: EngineInfo
    source: str
    """Where the reference comes from."""
    tolerance: float
    """Cosine distance allowed."""
    num_texts: int
    num_computed: int
    """Texts whose vectors were compared; of the others, the ids."""
    checks: tuple[Check, ...]
    worst_text: str
    """The text whose vector is farthest from the reference's."""
    other_ids: tuple[str, ...]
    """Texts that became other token ids than the reference's."""
    what: str = "vectors"
    """What was compared."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def least_cosine(self) -> float:
        """Of a vector to the reference's; of vectors alone."""
        return next(check.value for check in self.checks if check.name == LEAST_COSINE)


def verify(
    embedder: Embedder, *, golden: Path | None = None, tolerance: float | None = None, watch: Watch = lambda _: None
) -> VerifyReport:
    """Compare. With `golden`, the reference is read from that file, or written to it where there is none yet."""
    spec = embedder.spec
    texts = verification_texts(spec.max_length)
    reference = _reference(spec, texts, golden, watch)
    watch("tokenizing")
    own_ids = _token_ids(spec, texts)
    other_ids = [
        text
        for text, own, expected in zip(texts, own_ids, reference.token_ids, strict=True)
        if not np.array_equal(own, expected)
    ]
    short = [texts[index] for index in reference.computed]
    watch(f"computing {len(short)} texts, three times")
    vectors = Vectors(
        together=embedder.embed(short), alone=_one_by_one(embedder, short), shuffled=_shuffled(embedder, short)
    )
    limit = TOLERANCES[embedder.info.dtype] if tolerance is None else tolerance
    return VerifyReport(
        info=embedder.info,
        source=reference.source,
        tolerance=limit,
        num_texts=len(texts),
        num_computed=len(short),
        checks=(
            Check(name="texts with other token ids", value=len(other_ids), limit=0),
            *check_vectors(vectors, reference.vectors, limit),
        ),
        worst_text=short[int(cosine_distances(vectors.together, reference.vectors).argmax())],
        other_ids=tuple(other_ids),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vectors:
    """The same texts, computed in three ways; row i is always text i: float32[n, dim] each."""

    together: Float32Array
    alone: Float32Array
    """Each text by itself."""
    shuffled: Float32Array
    """All of them, in another order."""


def check_vectors(vectors: Vectors, expected: Float32Array, tolerance: float) -> tuple[Check, ...]:
    """All figures of `vectors` that a cosine distance of `tolerance` limits."""
    distances = cosine_distances(vectors.together, expected)
    error = float(relative_errors(vectors.together, expected).max())
    neighbours = compare_neighbours(vectors.together, expected, tolerance)
    alone, shuffled = (_largest(vectors.together, others) for others in (vectors.alone, vectors.shuffled))
    return (
        Check(name=LEAST_COSINE, value=1 - float(distances.max()), limit=1 - tolerance, at_least=True),
        Check(name="cosine, mean", value=1 - float(distances.mean())),
        Check(name="relative error, largest", value=error, limit=sqrt(2 * tolerance)),
        Check(name="top-10 neighbours that agree", value=neighbours.agreement),
        Check(name="neighbours beyond ties", value=neighbours.beyond_ties, limit=0),
        Check(name="alone or in a batch, cosine distance", value=alone, limit=tolerance),
        Check(name="in another order, cosine distance", value=shuffled, limit=tolerance),
    )


def _reference(spec: ModelSpec, texts: list[str], golden: Path | None, watch: Watch) -> Reference:
    if golden is not None and golden.exists():
        return read_golden(golden, spec, texts)
    watch("computing the reference")
    reference = compute_reference(spec, texts)
    if golden is not None:
        write_golden(golden, reference, spec, texts)
    return reference


def _token_ids(spec: ModelSpec, texts: list[str]) -> list[Int32Array]:
    options = TokenizeOptions(prompt=resolve_prompt(spec), truncate=True)
    return [tokenized.token_ids for tokenized in TextTokenizer.load(spec).tokenize(texts, options)]


def _one_by_one(embedder: Embedder, texts: list[str]) -> Float32Array:
    return np.concatenate([embedder.embed([text]) for text in texts])


def _shuffled(embedder: Embedder, texts: list[str]) -> Float32Array:
    """Vectors in the order of `texts`, computed in another."""
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(texts))
    vectors = np.empty((len(texts), embedder.spec.dim), np.float32)
    vectors[order] = embedder.embed([texts[index] for index in order])
    return vectors


def _largest(vectors: Float32Array, others: Float32Array) -> float:
    return max(0.0, float(cosine_distances(vectors, others).max()))
