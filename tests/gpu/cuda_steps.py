"""Running one batch on an engine, and how near its vectors are to others."""

import numpy as np

from rosebed.core.types import Batch, Float32Array, OutputKind


def vectors_of(engine: object, batch: Batch) -> Float32Array:
    """The dense rows of one step, all of them finite."""
    lazy = engine.step(batch)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        result = lazy.result()
        assert not result.status.any()
        return result.output(OutputKind.DENSE).copy()
    finally:
        lazy.release()


def least_cosine(actual: Float32Array, expected: Float32Array) -> float:
    """Of rows of the same place."""
    cosines = (actual * expected).sum(1) / np.linalg.norm(actual, axis=1) / np.linalg.norm(expected, axis=1)
    return float(cosines.min())
