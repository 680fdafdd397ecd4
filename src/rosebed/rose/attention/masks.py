"""Masks as numbers to add to attention scores: 0 where a key counts, minus infinity where it does not."""

import torch
from torch import Tensor

from rosebed.rose.attention.base import AttentionSpec


def position_mask(length: int, spec: AttentionSpec, device: torch.device) -> Tensor | None:
    """float32[length, length] (query, key) of causality and window; None where every token sees every other."""
    if not spec.causal and spec.window is None:
        return None
    positions = torch.arange(length, device=device)
    distance = positions - positions.unsqueeze(1)  # key minus query
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if spec.causal:
        hidden |= distance > 0
    if spec.window is not None:
        hidden |= distance.abs() > spec.window
    return _minus_infinity_where(hidden)


def relative_bias_matrix(relative_bias: Tensor, length: int) -> Tensor:
    """float32[num_heads, length, length] (query, key) from the bias per distance, float32[num_heads, 2n - 1]."""
    middle = relative_bias.shape[1] // 2  # distance 0
    band = relative_bias[:, middle - length + 1 : middle + length]  # [num_heads, 2 · length - 1]
    # Row i of the matrix is the window of the band that starts at length - 1 - i.
    return band.unfold(1, length, 1).flip(1)


def _minus_infinity_where(hidden: Tensor) -> Tensor:
    return torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)
