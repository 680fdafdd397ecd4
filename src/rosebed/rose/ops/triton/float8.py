"""Rows in float8, one scale each: what comes before a scaled product, with the activation of the product before it."""

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.triton.pdl import wait_for_predecessor
from rosebed.rose.ops.triton.small_linear import Epilogue, activate


@triton.jit
def _quantize_rows_kernel(
    x_ptr,  # [num_rows, WIDTH], or [num_rows, 2 * WIDTH] when gated
    values_ptr,  # float8[num_rows, WIDTH]
    scales_ptr,  # float32[num_rows]
    LARGEST: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    EPILOGUE: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_POW2)
    mask = columns < WIDTH
    wait_for_predecessor(PDL)
    if EPILOGUE == 3:
        x = tl.load(x_ptr + row * 2 * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(x_ptr + row * 2 * WIDTH + WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
        x = x * tl.sigmoid(x) * up
    else:
        x = activate(tl.load(x_ptr + row * WIDTH + columns, mask=mask, other=0.0).to(tl.float32), EPILOGUE)
    # NOTE: a row of zeros has scale 1; a NaN or an infinity makes its own row's scale so, and nobody else's.
    largest = tl.max(tl.where(tl.abs(x) < float("inf"), tl.abs(x), float("inf")))
    scale = tl.where(largest > 0.0, largest / LARGEST, 1.0)
    values = tl.minimum(tl.maximum(x / scale, -LARGEST), LARGEST)
    tl.store(values_ptr + row * WIDTH + columns, values.to(values_ptr.dtype.element_ty), mask=mask)
    tl.store(scales_ptr + row, scale)


def quantize_rows(
    x: torch.Tensor, *, epilogue: Epilogue = Epilogue.NONE, pdl: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """activation(x) as (float8_e4m3fn[num_rows, width], float32[num_rows, 1]), whose product it is but for rounding.

    `x` is [num_rows, width] contiguous, for SILU_MUL [num_rows, 2 * width]. A row that is not finite gets a scale that
    is not, so that whatever is computed from it shows.
    """
    num_rows = len(x)
    width = x.shape[1] // (2 if epilogue is Epilogue.SILU_MUL else 1)
    values = torch.empty((num_rows, width), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((num_rows, 1), dtype=torch.float32, device=x.device)
    _quantize_rows_kernel[(num_rows,)](
        x,
        values,
        scales,
        LARGEST=torch.finfo(torch.float8_e4m3fn).max,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        EPILOGUE=int(epilogue),
        PDL=pdl,
        num_warps=4 if width <= 2048 else 8,
        **({"launch_pdl": True} if pdl else {}),
    )
    return values, scales
