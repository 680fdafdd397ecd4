"""Attention in plain torch: runs anywhere, takes every spec, and is what the CPU uses.

Sequences over `SHORT` tokens are attended to one by one, as views of the packed tensors: no padding, no copy. Shorter
ones are gathered into groups of near lengths, since a call costs as much as they do; padding never leaves this file.

Measured (EPYC, 2 cores, float32, µs per layer at 12 heads of 32): 64 sequences of 4 to 12 tokens 1875 one by one, 1375
in groups of equal length, 929 in groups of near length by products; 16 sequences of 5 to 128 tokens 1953, 2127, 1833;
4 sequences of 200 to 500 tokens 10119 one by one, 15085 padded to one group. The QKV product takes 2126 at 517 tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.engine import BatchLimits
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.masks import padding_mask, position_mask, relative_bias_matrix

SHORT = 64
"""Longest sequence, in tokens, that is attended to in a group."""
GROUP_RATIO = 1.5
"""A group's longest sequence is at most this many times its shortest."""


@dataclass(frozen=True, slots=True)
class Group:
    """Short sequences padded to one length. Padding repeats a sequence's own last token, so no row sees another's."""

    rows: Tensor
    """int64[num_sequences · max_seqlen]: where on the packed axis each padded row is read."""
    valid: Tensor | None
    """int64[sum of lengths]: which padded rows are real; None if all are."""
    lengths: Int32Array
    """int32[num_sequences], longest first."""

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def max_seqlen(self) -> int:
        return int(self.lengths[0])


class SdpaAttention:
    """`AttentionBackend` over torch.nn.functional.scaled_dot_product_attention and plain products."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec
        self._alone: list[tuple[int, int]] = []  # [start, end) of each long sequence
        self._groups: list[Group] = []

    def allocate(self, limits: BatchLimits) -> None:
        """Nothing to reserve."""

    def plan(self, layout: SequenceLayout) -> None:
        lengths = np.diff(layout.cu_seqlens)
        self._alone = [
            (int(layout.cu_seqlens[i]), int(layout.cu_seqlens[i + 1])) for i in np.flatnonzero(lengths > SHORT)
        ]
        self._groups = [_gather(layout.cu_seqlens, members) for members in near_lengths(lengths)]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for start, end in self._alone:
            out[start:end] = self._attend_alone(q[start:end], k[start:end], v[start:end], relative_bias)
        for group in self._groups:
            self._attend_group(group, (q, k, v), relative_bias, out)
        return out

    def _attend_alone(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:
        """[n, num_heads, head_dim] of one sequence of n tokens."""
        mask = self._mask(len(q), relative_bias, like=q)
        is_causal = self._spec.causal and mask is None
        batched = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))  # [1, heads, n, head_dim]
        out = F.scaled_dot_product_attention(*batched, attn_mask=mask, is_causal=is_causal, enable_gqa=True)
        return out[0].transpose(0, 1)

    def _mask(self, length: int, relative_bias: Tensor | None, *, like: Tensor) -> Tensor | None:
        """What is added to the scores of one long sequence, broadcastable to [heads, n, n]; None if nothing, or if the
        causal mask is all of it."""
        if self._spec.window is None and relative_bias is None:
            return None
        mask = position_mask(length, self._spec, like.device)
        if relative_bias is not None:
            bias = relative_bias_matrix(relative_bias, length)
            mask = bias if mask is None else bias + mask
        assert mask is not None
        return mask.to(like.dtype)

    def _attend_group(
        self, group: Group, qkv: tuple[Tensor, Tensor, Tensor], relative_bias: Tensor | None, out: Tensor
    ) -> None:
        num_kv_heads, head_dim = self._spec.num_kv_heads, self._spec.head_dim
        rows = group.rows.to(out.device)
        shape = (group.num_sequences, group.max_seqlen, num_kv_heads, -1, head_dim)
        # [num_sequences, num_kv_heads, queries per key head (1 for k and v), max_seqlen, head_dim]
        q, k, v = (x.index_select(0, rows).float().view(shape).permute(0, 2, 3, 1, 4) for x in qkv)
        scores = (q.flatten(2, 3) @ k[:, :, 0].transpose(-1, -2)) * head_dim**-0.5
        self._add_masks(scores.unflatten(2, (-1, group.max_seqlen)), group, relative_bias)
        context = scores.softmax(-1) @ v[:, :, 0]
        context = context.unflatten(2, (-1, group.max_seqlen)).permute(0, 3, 1, 2, 4).reshape(len(rows), *out.shape[1:])
        if group.valid is not None:
            valid = group.valid.to(out.device)
            rows, context = rows[valid], context[valid]
        out.index_copy_(0, rows, context.to(out.dtype))

    def _add_masks(self, scores: Tensor, group: Group, relative_bias: Tensor | None) -> None:
        """Onto scores [num_sequences, num_kv_heads, queries per key head, max_seqlen, max_seqlen], in place."""
        if group.valid is not None:
            scores += padding_mask(group.lengths, scores.device)[:, None, None, None, :]
        mask = position_mask(group.max_seqlen, self._spec, scores.device)
        if mask is not None:
            scores += mask
        if relative_bias is not None:
            bias = relative_bias_matrix(relative_bias, group.max_seqlen)
            scores += bias.unflatten(0, (self._spec.num_kv_heads, -1))


def near_lengths(lengths: Int32Array) -> list[list[int]]:
    """Indices of the sequences of at most `SHORT` tokens, grouped so that lengths differ by `GROUP_RATIO` at most."""
    groups: list[list[int]] = []
    longest = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        if length > SHORT:
            continue
        if not groups or longest > length * GROUP_RATIO:
            groups.append([])
            longest = length
        groups[-1].append(index)
    return groups


def _gather(cu_seqlens: Int32Array, members: list[int]) -> Group:
    starts = cu_seqlens[members]
    lengths = cu_seqlens[np.add(members, 1)] - starts
    offsets = np.arange(lengths[0])
    rows = starts[:, None] + np.minimum(offsets, lengths[:, None] - 1)
    valid = offsets < lengths[:, None]
    return Group(
        rows=torch.from_numpy(rows.ravel().astype(np.int64)),
        valid=None if valid.all() else torch.from_numpy(np.flatnonzero(valid)),
        lengths=lengths,
    )
