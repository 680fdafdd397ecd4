"""Attention in plain torch: runs anywhere, takes every spec, and is what the CPU uses.

Sequences of one length share a call, the others have one each; nothing is padded. Where they lie side by side they are
read as views of the packed tensors; short ones that do not are gathered, since a call costs as much as they do.

Measured (EPYC, one thread, float32, µs per layer at 12 heads of 32): one sequence of 11 tokens 40; 16 of 11 tokens 641
one by one, 367 in a call; 64 sequences of 4 to 12 tokens 2063 one by one, 1836 padded to near lengths with a mask, 1190
by equal lengths; 12 of 40 to 60 tokens 1948, 2361 and 1978. The QKV product takes 4343 at 512 tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.engine import BatchLimits
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.masks import position_mask, relative_bias_matrix

SHORT = 64
"""Longest sequence, in tokens, that is gathered to share a call."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences of one length that share a call."""

    num_sequences: int
    length: int
    start: int
    """First row on the packed axis, if they lie side by side."""
    rows: Tensor | None = None
    """int64[num_sequences · length]: their rows on the packed axis, if they do not."""

    @property
    def num_tokens(self) -> int:
        return self.num_sequences * self.length


class SdpaAttention:
    """`AttentionBackend` over torch.nn.functional.scaled_dot_product_attention."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec
        self._groups: list[Group] = []
        self._masks: dict[int, Tensor | None] = {}  # by length, for all layers of a step
        self._masks_of: Tensor | None = None  # the relative bias that is in them

    def allocate(self, limits: BatchLimits) -> None:
        """Nothing to reserve."""

    def plan(self, layout: SequenceLayout) -> None:
        self._groups = equal_lengths(layout.cu_seqlens)
        self._masks.clear()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        if relative_bias is not self._masks_of:
            self._masks.clear()
            self._masks_of = relative_bias
        if len(self._groups) == 1 and self._groups[0].num_tokens == len(q):
            return self._attend(self._groups[0], q, k, v)
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for group in self._groups:
            if group.rows is None:
                rows = slice(group.start, group.start + group.num_tokens)
                out[rows] = self._attend(group, q[rows], k[rows], v[rows])
            else:
                rows = group.rows.to(q.device)
                gathered = (x.index_select(0, rows) for x in (q, k, v))
                out.index_copy_(0, rows, self._attend(group, *gathered))
        return out

    def _attend(self, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[num_sequences · length, num_heads, head_dim] of the sequences of one group, end to end."""
        mask = self._mask(group.length, like=q)
        shape = (group.num_sequences, group.length, -1, self._spec.head_dim)
        batched = (x.view(shape).transpose(1, 2) for x in (q, k, v))  # [num_sequences, heads, length, head_dim]
        is_causal = self._spec.causal and mask is None
        out = F.scaled_dot_product_attention(*batched, attn_mask=mask, is_causal=is_causal, enable_gqa=True)
        return out.transpose(1, 2).reshape(q.shape)

    def _mask(self, length: int, *, like: Tensor) -> Tensor | None:
        """What is added to the scores, broadcastable to [num_sequences, heads, length, length]; None if nothing, or if
        the causal mask is all of it."""
        if self._spec.window is None and self._masks_of is None:
            return None
        if length not in self._masks:
            self._masks[length] = _make_mask(length, self._spec, self._masks_of, like)
        return self._masks[length]


def _make_mask(length: int, spec: AttentionSpec, relative_bias: Tensor | None, like: Tensor) -> Tensor | None:
    mask = position_mask(length, spec, like.device)
    if relative_bias is not None:
        bias = relative_bias_matrix(relative_bias, length).unsqueeze(0)
        mask = bias if mask is None else bias + mask
    return None if mask is None else mask.to(like.dtype)


def equal_lengths(cu_seqlens: Int32Array) -> list[Group]:
    """Every sequence of a batch, in groups of one length; those over `SHORT` tokens only with their neighbours."""
    if len(cu_seqlens) == 2:
        return [Group(1, int(cu_seqlens[1]), 0)]
    starts, lengths = cu_seqlens[:-1], np.diff(cu_seqlens)
    groups: list[Group] = []
    for length in sorted(set(lengths.tolist())):
        own = starts[lengths == length]
        breaks = np.flatnonzero(np.diff(own) != length) + 1
        if len(breaks) and length <= SHORT:
            rows = (own[:, None] + np.arange(length)).ravel().astype(np.int64)
            groups.append(Group(len(own), length, int(own[0]), torch.from_numpy(rows)))
        else:
            groups += [Group(len(run), length, int(run[0])) for run in np.split(own, breaks)]
    return groups
