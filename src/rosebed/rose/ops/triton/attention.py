"""Ragged attention: a work list of query blocks, any number of sequences, grouped heads, sliding windows.

The grid depends on the token bucket alone: programs walk a list whose length is data, so one captured graph serves
every layout of its bucket, and no planning library is called. Keys past a sequence's end are never read, so a NaN in
a neighbour stays there. Source of the recurrence: FlashAttention-2 (Dao, 2023).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.ops.triton.pdl import wait_for_predecessor

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTiles:
    """How the scores of one head are cut."""

    block_q: int
    block_k: int
    num_warps: int
    num_stages: int


@triton.jit
def _attention_kernel(
    q_ptr,  # [num_tokens, H, D], rows q_stride apart
    k_ptr,  # [num_tokens, Hkv, D], rows kv_stride apart
    v_ptr,  # [num_tokens, Hkv, D], rows kv_stride apart
    out_ptr,  # [num_tokens, H, D], contiguous
    work_ptr,  # int32[1 + 3 * num_tiles]: num_tiles, then (first query, sequence start, sequence end) each
    bias_ptr,  # float32[H, 2 * bias_reach + 1]
    bias_reach,
    q_stride,
    kv_stride,
    scale,  # log2(e) / sqrt(head_dim)
    H: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    # NOTE: the work list was made before the first layer, several kernels ago, so it may be read before `wait`.
    num_items = tl.load(work_ptr) * H
    wait_for_predecessor(PDL)
    dims = tl.arange(0, D)
    for item in range(tl.program_id(0), num_items, tl.num_programs(0)):
        tile = work_ptr + 1 + 3 * (item // H)
        head = item % H
        first = tl.load(tile)
        start = tl.load(tile + 1)
        end = tl.load(tile + 2)
        queries = first + tl.arange(0, BLOCK_Q)
        is_query = queries < end
        q_ptrs = q_ptr + queries[:, None].to(tl.int64) * q_stride + head * D + dims[None, :]
        q = tl.load(q_ptrs, mask=is_query[:, None], other=0.0)
        low = start
        high = end
        if CAUSAL:
            high = tl.minimum(end, first + BLOCK_Q)
        if WINDOW >= 0:
            low = tl.maximum(start, first - WINDOW)
            if not CAUSAL:
                high = tl.minimum(end, first + BLOCK_Q + WINDOW)
        best = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_Q,), tl.float32)
        sums = tl.zeros((BLOCK_Q, D), tl.float32)
        kv_head = (head // GROUP) * D
        for block in tl.range(low, high, BLOCK_K, num_stages=STAGES):
            keys = block + tl.arange(0, BLOCK_K)
            is_key = keys < high
            rows = keys[:, None].to(tl.int64) * kv_stride + kv_head + dims[None, :]
            k = tl.load(k_ptr + rows, mask=is_key[:, None], other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            seen = is_key[None, :]
            if HAS_BIAS:
                distances = bias_reach + keys[None, :] - queries[:, None]
                in_table = seen & is_query[:, None]
                bias_row = bias_ptr + head * (2 * bias_reach + 1)
                scores += tl.load(bias_row + distances, mask=in_table, other=0.0) * 1.4426950408889634
            if CAUSAL:
                seen = seen & (keys[None, :] <= queries[:, None])
            if WINDOW >= 0:
                seen = seen & (queries[:, None] - keys[None, :] <= WINDOW)
                if not CAUSAL:
                    seen = seen & (keys[None, :] - queries[:, None] <= WINDOW)
            scores = tl.where(seen, scores, float("-inf"))
            new_best = tl.maximum(best, tl.max(scores, axis=1))
            # A row that has seen no key yet keeps -inf; subtracting it from itself would make NaN.
            reference = tl.where(new_best == float("-inf"), 0.0, new_best)
            weights = tl.exp2(scores - reference[:, None])
            decay = tl.exp2(best - reference)
            total = total * decay + tl.sum(weights, axis=1)
            v = tl.load(v_ptr + rows, mask=is_key[:, None], other=0.0)
            sums = tl.dot(weights.to(v.dtype), v, sums * decay[:, None], input_precision=PRECISION)
            best = new_best
        out = sums / tl.maximum(total, 1e-30)[:, None]  # rows past the sequence may have seen no key at all
        out_ptrs = out_ptr + queries[:, None].to(tl.int64) * (H * D) + head * D + dims[None, :]
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=is_query[:, None])


@triton.jit
def _work_list_kernel(
    cu_seqlens_ptr,  # int32[num_sequences + 1]
    work_ptr,  # int32[1 + 3 * num_tiles]
    num_sequences,
    SEQUENCES_POW2: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
):
    sequence = tl.program_id(0)
    start = tl.load(cu_seqlens_ptr + sequence)
    end = tl.load(cu_seqlens_ptr + sequence + 1)
    others = tl.arange(0, SEQUENCES_POW2)
    exists = others < num_sequences
    starts = tl.load(cu_seqlens_ptr + others, mask=exists, other=0)
    ends = tl.load(cu_seqlens_ptr + others + 1, mask=exists, other=0)
    counts = (ends - starts + BLOCK_Q - 1) // BLOCK_Q
    before = tl.sum(tl.where(others < sequence, counts, 0))
    if sequence == 0:
        tl.store(work_ptr, tl.sum(counts))
    count = (end - start + BLOCK_Q - 1) // BLOCK_Q
    for first in range(0, count, BLOCK_TILES):
        tiles = first + tl.arange(0, BLOCK_TILES)
        pointers = work_ptr + 1 + 3 * (before + tiles)
        mask = tiles < count
        tl.store(pointers, start + tiles * BLOCK_Q, mask=mask)
        tl.store(pointers + 1, start + tiles * 0, mask=mask)
        tl.store(pointers + 2, end + tiles * 0, mask=mask)


def build_work_list(cu_seqlens: Tensor, num_tokens: int, block_q: int) -> Tensor:
    """int32[1 + 3 * max_tiles]: how many query blocks there are, then (first query, sequence start, sequence end) of
    each. Made on the device from `cu_seqlens` int32[num_sequences + 1]; sequences may be empty."""
    num_sequences = len(cu_seqlens) - 1
    size = 1 + 3 * max_tiles(num_tokens, num_sequences, block_q)
    work = torch.empty(size, dtype=torch.int32, device=cu_seqlens.device)
    _work_list_kernel[(num_sequences,)](
        cu_seqlens,
        work,
        num_sequences,
        SEQUENCES_POW2=triton.next_power_of_2(num_sequences),
        BLOCK_Q=block_q,
        BLOCK_TILES=64,
        num_warps=1 if num_sequences <= 256 else 4,
    )
    return work


def max_tiles(num_tokens: int, num_sequences: int, block_q: int) -> int:
    """Most query blocks that so many tokens in so many sequences can make."""
    return num_tokens // block_q + num_sequences


def ragged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    work: Tensor,
    spec: AttentionSpec,
    *,
    tiles: AttentionTiles,
    num_programs: int,
    pdl: bool,
    relative_bias: Tensor | None = None,
) -> Tensor:
    """[num_tokens, H, D], contiguous, from q [num_tokens, H, D] and k, v [num_tokens, Hkv, D] (rows may be strided;
    k and v alike). `work` is from `build_work_list`; `relative_bias` as in `Attention.forward`. Rows that
    no sequence owns are left unwritten. D is a power of two from 16 on."""
    num_tokens, num_heads, head_dim = q.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    _attention_kernel[(num_programs,)](
        q,
        k,
        v,
        out,
        work,
        work if relative_bias is None else relative_bias,
        0 if relative_bias is None else relative_bias.shape[1] // 2,
        q.stride(0),
        k.stride(0),
        LOG2_E / head_dim**0.5,
        H=num_heads,
        GROUP=num_heads // spec.num_kv_heads,
        D=head_dim,
        CAUSAL=spec.causal,
        WINDOW=-1 if spec.window is None else spec.window,
        HAS_BIAS=relative_bias is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        BLOCK_Q=tiles.block_q,
        BLOCK_K=tiles.block_k,
        STAGES=tiles.num_stages,
        PDL=pdl,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        **({"launch_pdl": True} if pdl else {}),
    )
    return out
