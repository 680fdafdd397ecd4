"""Matrix products for few tokens (up to a few hundred), where cuBLAS leaves the memory system idle.

Weights are prefetched before the predecessor kernel has finished, the inner dimension may be split over programs
(the float32 partial sums are then added by the normalisation that follows), and bias, GELU or SwiGLU are epilogues.
Weights may be float8 with a scale per row: half the bytes to read, the same products.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.triton.pdl import prefetch_rows, wait_for_predecessor


class Epilogue(IntEnum):
    """What is applied to a product before it is stored."""

    NONE = 0
    GELU = 1
    """x · Φ(x), the erf form."""
    GELU_TANH = 2
    SILU_MUL = 3
    """silu(gate) · up, where the weight is [gate; up] stacked along its rows."""
    RELU = 4
    SILU = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearTiles:
    """How one product is cut into programs."""

    block_tokens: int
    block_out: int
    block_in: int
    split: int = 1
    """Programs that share the inner dimension; above 1 the result is float32 partial sums."""
    swap: bool = False
    """Compute the transpose, so that weight rows feed the matrix unit's 64-row side."""
    num_warps: int = 4
    num_stages: int = 4


@triton.jit
def activate(x, EPILOGUE: tl.constexpr):
    """The pointwise `Epilogue`s, on float32."""
    if EPILOGUE == 1:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif EPILOGUE == 2:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)
    elif EPILOGUE == 4:
        x = tl.maximum(x, 0.0)
    elif EPILOGUE == 5:
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def _small_linear_kernel(
    x_ptr,  # [num_tokens, IN]
    weight_ptr,  # [OUT, IN], or [2 * OUT, IN] when gated
    bias_ptr,  # [OUT]
    scales_ptr,  # float32[OUT], or [2 * OUT] when gated
    out_ptr,  # [num_tokens, OUT], or float32[SPLIT, num_tokens, OUT]
    num_tokens,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
    SPLIT: tl.constexpr,
    SPAN_POW2: tl.constexpr,
    SWAP: tl.constexpr,
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    GATED: tl.constexpr = EPILOGUE == 3
    SPAN: tl.constexpr = IN // SPLIT
    outs = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    tokens = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    first = tl.program_id(1) * SPAN
    inner = tl.arange(0, BLOCK_I)
    if PDL:
        prefetch_rows(weight_ptr + first, outs, IN, SPAN, SPAN_POW2)
        if GATED:
            prefetch_rows(weight_ptr + OUT * IN + first, outs, IN, SPAN, SPAN_POW2)
    wait_for_predecessor(PDL)

    weight_ptrs = weight_ptr + outs[:, None] * IN + first + inner[None, :]
    x_ptrs = x_ptr + tokens[:, None] * IN + first + inner[None, :]
    here = tokens[:, None] < num_tokens
    if SWAP:
        sums = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    else:
        sums = tl.zeros((BLOCK_T, BLOCK_O), tl.float32)
    if GATED:
        ups = tl.zeros((BLOCK_T, BLOCK_O), tl.float32)
    for k in tl.range(0, SPAN, BLOCK_I, num_stages=STAGES):
        weight = tl.load(weight_ptrs + k)
        x = tl.load(x_ptrs + k, mask=here, other=0.0)
        if HAS_SCALES:
            weight = weight.to(x.dtype)
        if SWAP:
            sums = tl.dot(weight, tl.trans(x), sums, input_precision=PRECISION)
        else:
            sums = tl.dot(x, tl.trans(weight), sums, input_precision=PRECISION)
        if GATED:
            up = tl.load(weight_ptrs + OUT * IN + k)
            if HAS_SCALES:
                up = up.to(x.dtype)
            ups = tl.dot(x, tl.trans(up), ups, input_precision=PRECISION)

    if HAS_SCALES:
        scales = tl.load(scales_ptr + outs)
        if SWAP:
            sums *= scales[:, None]
        else:
            sums *= scales[None, :]
        if GATED:
            ups *= tl.load(scales_ptr + OUT + outs)[None, :]
    if SWAP:
        out_ptrs = out_ptr + tokens[None, :] * OUT + outs[:, None]
        stored = (tokens[None, :] < num_tokens) & (outs[:, None] < OUT)
    else:
        out_ptrs = out_ptr + tokens[:, None] * OUT + outs[None, :]
        stored = here & (outs[None, :] < OUT)
    if SPLIT > 1:
        tl.store(out_ptrs + tl.program_id(1) * num_tokens * OUT, sums, mask=stored)
    else:
        if HAS_BIAS:
            bias = tl.load(bias_ptr + outs).to(tl.float32)
            if SWAP:
                sums += bias[:, None]
            else:
                sums += bias[None, :]
        if GATED:
            sums = sums * tl.sigmoid(sums) * ups
        else:
            sums = activate(sums, EPILOGUE)
        tl.store(out_ptrs, sums.to(out_ptr.dtype.element_ty), mask=stored)


def small_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    scales: torch.Tensor | None = None,
    tiles: LinearTiles,
    epilogue: Epilogue = Epilogue.NONE,
    pdl: bool,
) -> torch.Tensor:
    """activation(x W^T + b): [num_tokens, out] in x's dtype; with `tiles.split` above 1 float32[split, num_tokens, out]
    of partial sums, without bias or activation.

    `x` is [num_tokens, in] contiguous; `weight` [out, in], for SILU_MUL [2 * out, in]; where it is float8, `scales`
    holds a float32 for each of its rows. `out` must be a multiple of
    `block_out`, and in / split of `block_in` and of 64.
    """
    num_tokens, width = x.shape
    num_out = weight.shape[0] // (2 if epilogue is Epilogue.SILU_MUL else 1)
    span = width // tiles.split
    if num_out % tiles.block_out or width % tiles.split or span % tiles.block_in or span % 64:
        raise ValueError(f"{tiles} does not divide a product of {num_out} x {width}")
    if tiles.split > 1:
        out = torch.empty((tiles.split, num_tokens, num_out), dtype=torch.float32, device=x.device)
    else:
        out = torch.empty((num_tokens, num_out), dtype=x.dtype, device=x.device)
    grid = (num_out // tiles.block_out, tiles.split, triton.cdiv(num_tokens, tiles.block_tokens))
    _small_linear_kernel[grid](
        x,
        weight,
        weight if bias is None else bias,
        x if scales is None else scales,
        out,
        num_tokens,
        OUT=num_out,
        IN=width,
        HAS_BIAS=bias is not None and tiles.split == 1,
        HAS_SCALES=scales is not None,
        EPILOGUE=int(epilogue),
        BLOCK_T=tiles.block_tokens,
        BLOCK_O=tiles.block_out,
        BLOCK_I=tiles.block_in,
        SPLIT=tiles.split,
        SPAN_POW2=triton.next_power_of_2(span),
        SWAP=tiles.swap,
        STAGES=tiles.num_stages,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",  # the latter says nothing of 16-bit types
        PDL=pdl,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        **({"launch_pdl": True} if pdl else {}),
    )
    return out
