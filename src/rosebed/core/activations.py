"""What makes scores of logits. Pure numpy, in float32."""

from enum import StrEnum

import numpy as np

from rosebed.core.types import Float32Array


class Activation(StrEnum):
    """Names as torch.nn has them, in lower case."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    """Over the labels of a row, which then sum to 1."""


def activate(logits: Float32Array, activation: Activation) -> Float32Array:
    """float32[n, num_labels] of scores; no logit is too large for it."""
    if activation is Activation.IDENTITY:
        return logits
    if activation is Activation.SIGMOID:
        tail = np.exp(-np.abs(logits))  # never overflows
        return (np.where(logits >= 0, 1, tail) / (1 + tail)).astype(np.float32)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
