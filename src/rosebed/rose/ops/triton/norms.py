"""Residual addition and normalisation, one program per token, statistics in float32.

The input may be partial sums of a split product (`small_linear`): adding them up here saves a kernel.
"""

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.base import LayerNormWeights
from rosebed.rose.ops.triton.pdl import wait_for_predecessor


@triton.jit
def _sum_partials(x_ptr, token, columns, mask, num_tokens, WIDTH: tl.constexpr, PARTIALS: tl.constexpr):
    total = tl.zeros(columns.shape, tl.float32)
    for part in tl.static_range(PARTIALS):
        row = x_ptr + (part * num_tokens + token) * WIDTH
        total += tl.load(row + columns, mask=mask, other=0.0).to(tl.float32)
    return total


@triton.jit
def _add_layer_norm_kernel(
    x_ptr,  # [num_tokens, WIDTH], or float32[PARTIALS, num_tokens, WIDTH]
    x_bias_ptr,  # [WIDTH]
    residual_ptr,  # [num_tokens, WIDTH]
    weight_ptr,  # [WIDTH]
    bias_ptr,  # [WIDTH]
    out_ptr,  # [num_tokens, WIDTH]
    num_tokens,
    eps,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    PARTIALS: tl.constexpr,
    HAS_X_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_POW2)
    mask = columns < WIDTH
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    if HAS_X_BIAS:
        x_bias = tl.load(x_bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_predecessor(PDL)
    x = _sum_partials(x_ptr, token, columns, mask, num_tokens, WIDTH, PARTIALS)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + token * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    if HAS_X_BIAS:
        x += x_bias
    mean = tl.sum(x) / WIDTH
    centred = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / WIDTH + eps)
    out = centred * scale * weight + bias
    tl.store(out_ptr + token * WIDTH + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _add_rms_norm_kernel(
    x_ptr,  # [num_tokens, WIDTH], or float32[PARTIALS, num_tokens, WIDTH]
    residual_ptr,  # [num_tokens, WIDTH]
    weight_ptr,  # [WIDTH]
    out_ptr,  # [num_tokens, WIDTH]
    new_residual_ptr,  # [num_tokens, WIDTH]
    num_tokens,
    eps,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    PARTIALS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    PDL: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_POW2)
    mask = columns < WIDTH
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_predecessor(PDL)
    x = _sum_partials(x_ptr, token, columns, mask, num_tokens, WIDTH, PARTIALS)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + token * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(new_residual_ptr + token * WIDTH + columns, x.to(new_residual_ptr.dtype.element_ty), mask=mask)
    scale = tl.rsqrt(tl.sum(x * x) / WIDTH + eps)
    tl.store(out_ptr + token * WIDTH + columns, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


def _shape(x: torch.Tensor) -> tuple[int, int, int]:
    """(partials, num_tokens, width) of a plain or partial-sum input."""
    return (1, *x.shape) if x.dim() == 2 else tuple(x.shape)  # pyright: ignore[reportReturnType]


def _launch(width: int, pdl: bool) -> dict[str, int | bool]:
    options: dict[str, int | bool] = {"num_warps": 4 if width <= 2048 else 8, "PDL": pdl}
    return options | ({"launch_pdl": True} if pdl else {})


def add_layer_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    norm: LayerNormWeights,
    *,
    x_bias: torch.Tensor | None = None,
    pdl: bool,
) -> torch.Tensor:
    """LayerNorm(x + x_bias + residual): [num_tokens, width] in the dtype of `norm`.

    `x` is [num_tokens, width] or float32[partials, num_tokens, width]; `x_bias` is [width].
    """
    partials, num_tokens, width = _shape(x)
    out = torch.empty((num_tokens, width), dtype=norm.weight.dtype, device=x.device)
    _add_layer_norm_kernel[(num_tokens,)](
        x,
        norm.weight if x_bias is None else x_bias,
        x if residual is None else residual,
        norm.weight,
        norm.bias,
        out,
        num_tokens,
        norm.eps,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        PARTIALS=partials,
        HAS_X_BIAS=x_bias is not None,
        HAS_RESIDUAL=residual is not None,
        **_launch(width, pdl),
    )
    return out


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, *, pdl: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(RMSNorm(x + residual), x + residual), both [num_tokens, width] in residual's dtype.

    The norm sees the float32 sum before it is rounded. `x` is [num_tokens, width] or float32 partial sums.
    """
    partials, num_tokens, width = _shape(x)
    out, new_residual = torch.empty_like(residual), torch.empty_like(residual)
    _add_rms_norm_kernel[(num_tokens,)](
        x,
        residual,
        weight,
        out,
        new_residual,
        num_tokens,
        eps,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        PARTIALS=partials,
        HAS_RESIDUAL=True,
        **_launch(width, pdl),
    )
    return out, new_residual


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, *, pdl: bool) -> torch.Tensor:
    """RMSNorm(x): [num_tokens, width], as x."""
    num_tokens, width = x.shape
    out = torch.empty_like(x)
    _add_rms_norm_kernel[(num_tokens,)](
        x,
        x,
        weight,
        out,
        out,
        num_tokens,
        eps,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        PARTIALS=1,
        HAS_RESIDUAL=False,
        **_launch(width, pdl),
    )
    return out
