"""Forms a vector takes on its way out. Order everywhere: truncate dimensions, normalise, then encode."""

import base64

import numpy as np

from rosebed.core.types import Float32Array


def to_base64(vector: Float32Array) -> str:
    """Base64 of the little-endian float32 bytes of `vector` (float32[dim]), as OpenAI's API sends it."""
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")


def from_base64(text: str) -> Float32Array:
    """Inverse of `to_base64`: float32[dim]. ValueError if `text` is not base64 of whole floats."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float32, copy=False)
