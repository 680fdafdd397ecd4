"""Pointwise ends of products that cuBLAS computed."""

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.triton.pdl import wait_for_predecessor
from rosebed.rose.ops.triton.small_linear import Epilogue, activate


@triton.jit
def _bias_activation_kernel(
    x_ptr,  # [count / WIDTH, WIDTH], changed in place
    bias_ptr,  # [WIDTH]
    count,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    wait_for_predecessor(PDL)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias_ptr + offsets % WIDTH, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr + offsets, activate(x, EPILOGUE).to(x_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _silu_and_mul_kernel(
    gate_up_ptr,  # [num_tokens, 2 * WIDTH]
    out_ptr,  # [num_tokens, WIDTH]
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < WIDTH
    wait_for_predecessor(PDL)
    gate = tl.load(gate_up_ptr + token * 2 * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + token * 2 * WIDTH + WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + token * WIDTH + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


def bias_activation_(x: torch.Tensor, bias: torch.Tensor | None, epilogue: Epilogue, *, pdl: bool) -> torch.Tensor:
    """activation(x + bias) in place on contiguous x [num_tokens, width]; returns x."""
    block = 2048
    _bias_activation_kernel[(triton.cdiv(x.numel(), block),)](
        x,
        x if bias is None else bias,
        x.numel(),
        WIDTH=x.shape[1],
        HAS_BIAS=bias is not None,
        EPILOGUE=int(epilogue),
        BLOCK=block,
        PDL=pdl,
        num_warps=8,
        **({"launch_pdl": True} if pdl else {}),
    )
    return x


def silu_and_mul(gate_up: torch.Tensor, *, pdl: bool) -> torch.Tensor:
    """silu(first half) * second half of contiguous [num_tokens, 2 * width]: [num_tokens, width]."""
    num_tokens, double = gate_up.shape
    out = torch.empty((num_tokens, double // 2), dtype=gate_up.dtype, device=gate_up.device)
    block = min(1024, triton.next_power_of_2(double // 2))
    _silu_and_mul_kernel[(num_tokens, triton.cdiv(double // 2, block))](
        gate_up,
        out,
        WIDTH=double // 2,
        BLOCK=block,
        PDL=pdl,
        num_warps=4,
        **({"launch_pdl": True} if pdl else {}),
    )
    return out
