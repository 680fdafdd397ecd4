"""Per-head RMSNorm and rotary embedding of queries and keys, in place on the packed QKV product.

One program per token and group of heads. Source: Qwen3 (norm before rotation, half-split rotation).
"""

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.base import HeadShape
from rosebed.rose.ops.triton.pdl import wait_for_predecessor


@triton.jit
def _qk_norm_rope_kernel(
    qkv_ptr,  # [num_tokens, ROW], changed in place
    q_weight_ptr,  # [2 * HALF]
    k_weight_ptr,  # [2 * HALF]
    positions_ptr,  # int32[num_tokens]
    cos_sin_ptr,  # float32[max_positions, 2 * HALF]
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_ROTATED: tl.constexpr,
    ROW: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    half = tl.arange(0, HALF)
    mask = (heads < NUM_ROTATED)[:, None]
    is_query = (heads < NUM_HEADS)[:, None]
    weight1 = tl.where(is_query, tl.load(q_weight_ptr + half)[None, :], tl.load(k_weight_ptr + half)[None, :])
    weight2 = tl.where(
        is_query, tl.load(q_weight_ptr + HALF + half)[None, :], tl.load(k_weight_ptr + HALF + half)[None, :]
    )
    position = tl.load(positions_ptr + token).to(tl.int64)
    cos = tl.load(cos_sin_ptr + position * 2 * HALF + half)[None, :]
    sin = tl.load(cos_sin_ptr + position * 2 * HALF + HALF + half)[None, :]
    wait_for_predecessor(PDL)
    pointers = qkv_ptr + token * ROW + heads[:, None] * 2 * HALF + half[None, :]
    x1 = tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
    x2 = tl.load(pointers + HALF, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x1 * x1 + x2 * x2, axis=1) / (2 * HALF) + eps)[:, None]
    x1 = x1 * scale * weight1.to(tl.float32)
    x2 = x2 * scale * weight2.to(tl.float32)
    tl.store(pointers, (x1 * cos - x2 * sin).to(qkv_ptr.dtype.element_ty), mask=mask)
    tl.store(pointers + HALF, (x2 * cos + x1 * sin).to(qkv_ptr.dtype.element_ty), mask=mask)


def qk_norm_rope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    heads: HeadShape,
    eps: float,
    *,
    pdl: bool,
) -> None:
    """Norm and rotate the query and key heads of `qkv` [num_tokens, (H + 2 Hkv) * head_dim] in place.

    `positions` int32[num_tokens]; `cos_sin` float32[max_positions, head_dim]: cosines, then sines. head_dim / 2 must
    be a power of two.
    """
    num_rotated = heads.num_heads + heads.num_kv_heads
    block = min(16, triton.next_power_of_2(num_rotated))
    _qk_norm_rope_kernel[(len(qkv), triton.cdiv(num_rotated, block))](
        qkv,
        q_weight,
        k_weight,
        positions,
        cos_sin,
        eps,
        NUM_HEADS=heads.num_heads,
        NUM_ROTATED=num_rotated,
        ROW=qkv.shape[1],
        HALF=heads.head_dim // 2,
        BLOCK_H=block,
        PDL=pdl,
        num_warps=8 if len(qkv) <= 256 else 4,
        **({"launch_pdl": True} if pdl else {}),
    )
