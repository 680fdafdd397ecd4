"""Ragged attention against a plain softmax per sequence in float32."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rosebed.core.types import Batch, Sequence, SequenceLayout, whole_span
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.ops.triton.attention import AttentionTiles, build_work_list, max_tiles, ragged_attention

TILES = AttentionTiles(block_q=16, block_k=32, num_warps=4, num_stages=2)


def layout_of(*lengths: int) -> SequenceLayout:
    return Batch.pack(
        Sequence(token_ids=np.zeros(length, np.int32), pool_spans=whole_span(length)) for length in lengths
    ).layout


def work_of(layout: SequenceLayout, device: torch.device) -> Tensor:
    return build_work_list(torch.from_numpy(layout.cu_seqlens).to(device), layout.num_tokens, TILES.block_q)


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, layout: SequenceLayout, spec: AttentionSpec, bias: Tensor | None = None
) -> Tensor:
    group = spec.num_heads // spec.num_kv_heads
    outs: list[Tensor] = []
    for start, end in zip(layout.cu_seqlens[:-1].tolist(), layout.cu_seqlens[1:].tolist(), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q[start:end].float(), k[start:end].float().repeat_interleave(group, 1))
        distance = torch.arange(end - start)[:, None] - torch.arange(end - start)[None, :]
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if spec.causal:
            hidden |= distance < 0
        if spec.window is not None:
            hidden |= distance.abs() > spec.window
        scores = scores / spec.head_dim**0.5
        if bias is not None:
            scores = scores + bias[:, bias.shape[1] // 2 - distance]
        scores = scores.masked_fill(hidden.to(scores.device), float("-inf"))
        outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[start:end].float().repeat_interleave(group, 1)))
    return torch.cat(outs)


@pytest.mark.parametrize("lengths", [(1,), (16,), (1, 2, 7, 1), (33, 1, 64), (5, 80, 3)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_matches_softmax(
    lengths: tuple[int, ...],
    causal: bool,
    window: int | None,
    num_kv_heads: int,
    device: torch.device,
    dtype: torch.dtype,
    pdl: bool,
    tolerance: float,
) -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=num_kv_heads, head_dim=32, causal=causal, window=window)
    layout = layout_of(*lengths)
    packed = torch.randn(sum(lengths), (4 + 2 * num_kv_heads), 32).to(device=device, dtype=dtype)
    q, k, v = packed.split((4, num_kv_heads, num_kv_heads), dim=1)
    work = work_of(layout, device)
    out = ragged_attention(q, k, v, work, spec, tiles=TILES, num_programs=6, pdl=pdl)
    expected = attend_plainly(q, k, v, layout, spec)
    assert float((out.float() - expected).norm() / expected.norm()) < tolerance


def test_relative_bias(device: torch.device, dtype: torch.dtype, tolerance: float) -> None:
    spec = AttentionSpec(num_heads=2, num_kv_heads=2, head_dim=32, relative_bias=True)
    layout = layout_of(40, 3, 17)
    q, k, v = (torch.randn(60, 2, 32).to(device=device, dtype=dtype) for _ in range(3))
    bias = torch.randn(2, 2 * 50 - 1).to(device)  # a table made for sequences of up to 50 tokens
    work = work_of(layout, device)
    out = ragged_attention(q, k, v, work, spec, tiles=TILES, num_programs=3, pdl=False, relative_bias=bias)
    expected = attend_plainly(q, k, v, layout, spec, bias)
    assert float((out.float() - expected).norm() / expected.norm()) < tolerance


def test_nan_neighbours_stay_where_they_are(device: torch.device, dtype: torch.dtype) -> None:
    spec = AttentionSpec(num_heads=2, num_kv_heads=2, head_dim=32)
    layout = layout_of(7, 20, 9)
    q, k, v = (torch.randn(36, 2, 32).to(device=device, dtype=dtype) for _ in range(3))
    for tensor in (q, k, v):
        tensor[7:27] = float("nan")
    work = work_of(layout, device)
    out = ragged_attention(q, k, v, work, spec, tiles=TILES, num_programs=2, pdl=False)
    expected = attend_plainly(q, k, v, layout, spec)
    torch.testing.assert_close(out[:7].float(), expected[:7], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(out[27:].float(), expected[27:], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("lengths", [(1,), (5, 33, 16, 1), (0, 5, 0, 0, 17, 0), (3000,), tuple(range(1, 70))])
def test_work_list_covers_every_query_once(lengths: tuple[int, ...], device: torch.device) -> None:
    cu_seqlens = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    work = build_work_list(torch.from_numpy(cu_seqlens).to(device), sum(lengths), 16).cpu().numpy()
    expected = [
        (start + first, start, start + length)
        for start, length in zip(cu_seqlens.tolist(), lengths, strict=False)
        for first in range(0, length, 16)
    ]
    assert work[0] == len(expected) <= max_tiles(sum(lengths), len(lengths), 16)
    assert work[1 : 1 + 3 * len(expected)].reshape(-1, 3).tolist() == [list(tile) for tile in expected]
