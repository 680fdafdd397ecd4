"""From logits and vectors to scores, and from scores to an order. Pure numpy, in float32."""

from enum import Enum

import numpy as np

from rosebed.core.activations import Activation, activate
from rosebed.core.errors import InvalidInput, WrongModelKind
from rosebed.core.scorer import ScorerSpec
from rosebed.core.types import Float32Array


class Scale(Enum):
    """What range scores are wanted in."""

    MODEL = "model"
    """The checkpoint's own activation; the cosine, of vectors."""
    RAW = "raw"
    """The logit itself; the cosine, of vectors."""
    UNIT = "unit"
    """Between 0 and 1: sigmoid of the logit; (1 + cosine) / 2, of vectors."""


def check_one_label(scorer: ScorerSpec) -> None:
    """WrongModelKind if a pair has no one score."""
    if scorer.num_labels != 1:
        raise WrongModelKind(
            f"this model has {scorer.num_labels} labels ({', '.join(scorer.labels)}), so that a pair has no one score: "
            "it classifies"
        )


def scores_of(logits: Float32Array, scorer: ScorerSpec, scale: Scale) -> Float32Array:
    """float32[n] of logits float32[n, 1]."""
    own = {Scale.MODEL: scorer.activation, Scale.RAW: Activation.IDENTITY, Scale.UNIT: Activation.SIGMOID}
    return activate(logits, own[scale])[:, 0]


def cosines_of(queries: Float32Array, documents: Float32Array, scale: Scale) -> Float32Array:
    """float32[n] of unit vectors float32[n, dim], row by row."""
    cosines = np.einsum("nd,nd->n", queries, documents).clip(-1, 1)  # rounding can go past
    return (1 + cosines) / 2 if scale is Scale.UNIT else cosines


def ranked(scores: Float32Array, top_n: int | None = None) -> list[int]:
    """Places of the `top_n` highest scores (None: of all), best first; of equal ones the first place first."""
    return np.argsort(-scores, kind="stable")[:top_n].tolist()


def check_top_n(top_n: int | None, name: str = "top_n") -> int | None:
    """`top_n` itself. InvalidInput below 1; more than there are documents means all of them."""
    if top_n is not None and top_n < 1:
        raise InvalidInput(f"{name} should be at least 1, not {top_n}", param=name)
    return top_n
