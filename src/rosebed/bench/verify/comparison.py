"""How far two sets of vectors are apart. Pure numpy; knows neither model nor library."""

from dataclasses import dataclass

import numpy as np

from rosebed.bench.first_answers import cosines
from rosebed.core.types import Float32Array

NEIGHBOURS = 10
TIES = 10.0
"""Similarities closer than this many tolerances are ties: which of them is the nearer neighbour means nothing."""

TOLERANCES = {"float32": 1e-5, "bfloat16": 1e-3, "float16": 1e-3, "float8": 1e-2, "int8": 1e-2}
"""Cosine distance that a vector may have from the reference's, by compute type. What float8 really costs depends on the
model: the report shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """How well the nearest neighbours of each text agree."""

    agreement: float
    """Share of the nearest ten that are the reference's too."""
    beyond_ties: int
    """Neighbours that the reference finds clearly farther away than its own tenth."""


def cosine_distances(vectors: Float32Array, others: Float32Array) -> Float32Array:
    """Of rows of the same place, float32[n]; NaN counts as 1, so that nothing that is not a number passes."""
    return np.nan_to_num(1 - cosines(vectors, others), nan=1.0)


def relative_errors(vectors: Float32Array, expected: Float32Array) -> Float32Array:
    """Length of each row's error in lengths of the expected row, float32[n]; infinity for what is not a number."""
    errors = np.linalg.norm(vectors - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return np.nan_to_num(errors, nan=np.inf)


def compare_neighbours(vectors: Float32Array, expected: Float32Array, tolerance: float) -> Neighbours:
    """Each row's nearest others by cosine, in one set and in the other."""
    ours, theirs = _similarities(vectors), _similarities(expected)
    count = min(NEIGHBOURS, len(ours) - 1)
    nearest, expected_nearest = (np.argsort(-found, axis=1, kind="stable")[:, :count] for found in (ours, theirs))
    agreeing = sum(len(np.intersect1d(a, b)) for a, b in zip(nearest, expected_nearest, strict=True))
    farthest = np.take_along_axis(theirs, expected_nearest[:, -1:], axis=1)
    beyond = np.take_along_axis(theirs, nearest, axis=1) < farthest - TIES * tolerance
    return Neighbours(agreement=agreeing / nearest.size, beyond_ties=int(beyond.sum()))


def _similarities(vectors: Float32Array) -> Float32Array:
    """Cosine of every pair, float32[n, n]; a row is no neighbour of itself."""
    unit = np.nan_to_num(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    similarities = unit @ unit.T
    np.fill_diagonal(similarities, -np.inf)
    return similarities
