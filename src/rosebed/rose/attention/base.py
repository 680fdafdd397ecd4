"""What an attention backend is. Knows the shape of a batch, not the model around it."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from rosebed.core.engine import BatchLimits
from rosebed.core.types import SequenceLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """The attention a model needs. Scores are scaled by 1 / sqrt(head_dim)."""

    num_heads: int
    num_kv_heads: int
    """Divides num_heads; each serves num_heads / num_kv_heads neighbouring query heads."""
    head_dim: int
    causal: bool = False
    """A token sees itself and what comes before it; otherwise its whole sequence."""
    window: int | None = None
    """A token sees neighbours at most this many positions away, on each side that `causal` leaves; None sees all."""
    relative_bias: bool = False
    """Whether `forward` will be given a bias per head and distance (MPNet)."""


class Attention(Protocol):
    """What a model calls, once per layer."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        """[T, num_heads, head_dim] from q of that shape and k, v [T, num_kv_heads, head_dim].

        Inputs are contiguous in their last dimension only: they may be views of one packed QKV tensor. Rows of T that
        no sequence owns are padding: finite in, finite out. `relative_bias` is contiguous float32[num_heads, 2n - 1]
        with n at least the longest sequence: the score of query i and key j gets relative_bias[head, n - 1 + j - i].
        """
        ...


class AttentionBackend(Attention, Protocol):
    """Attention of each sequence over itself, on packed tokens. One instance serves every layer of one slot.

    `plan` works on the host and may read its arguments; `forward` only enqueues, so that a CUDA graph can capture it
    once and replay it after any later `plan` whose layout fits the same buckets.
    """

    def allocate(self, limits: BatchLimits) -> None:
        """Reserve what the largest batch needs. Called once, before the first `plan`."""
        ...

    def plan(self, layout: SequenceLayout) -> None:
        """Prepare for the batch that the next `forward` calls (one per layer) belong to."""
        ...
