"""The check before any measurement: a target answers with one finite vector per input, and twice the same."""

import asyncio

import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import Canned, Payload, Target
from rosebed.core.errors import ServerError
from rosebed.core.types import Float32Array

MAX_DIVERGENCE = 1e-3
"""Cosine distance that two answers to the same request may have."""


async def check_first_answers(
    target: Target, request: BenchRequest, payload: Payload, *, timeout_s: float
) -> tuple[Canned | None, float]:
    """Ask the same thing twice: an answer as a null server can repeat it, and the largest cosine distance.

    ServerError if an answer is not what was asked for, or the two differ; whatever the target raises; TimeoutError.
    """
    connection = await target.connect()
    async with asyncio.timeout(timeout_s):
        first, second = [await connection.exchange(payload) for _ in range(2)]
    await connection.close()
    num_inputs = len(request.shape.lengths)
    vectors = target.vectors(first), target.vectors(second)
    if any(len(rows) != num_inputs or not np.isfinite(rows).all() for rows in vectors):
        raise ServerError(f"the answer to {num_inputs} inputs is not as many finite vectors")
    divergence = max(0.0, float((1 - cosines(*vectors)).max()))
    if divergence > MAX_DIVERGENCE:
        raise ServerError(f"two answers to the same request are {divergence:.2g} apart in cosine")
    return target.canned(first), divergence


def cosines(first: Float32Array, second: Float32Array) -> Float32Array:
    """Cosine of each row of one with the same row of the other: float32[n]."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.einsum("ij,ij->i", first, second) / norms
