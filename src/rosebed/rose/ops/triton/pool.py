"""From hidden states to finished dense vectors: segmented pooling, then truncation, L2 norm and a finite flag."""

import torch
import triton
import triton.language as tl

from rosebed.core.model_spec import Pooling

_MIN_NORM = tl.constexpr(1e-12)
_MAX_PROGRAMS = 528
"""Four for each multiprocessor of a Hopper chip."""
_MODES = {Pooling.CLS: 0, Pooling.MEAN: 1, Pooling.LAST: 2}


@triton.jit
def _pool_kernel(
    hidden_ptr,  # [num_tokens, WIDTH]
    spans_ptr,  # int32[num_spans, 2]
    out_ptr,  # float32[num_spans, WIDTH]
    num_spans,
    SPANS_POW2: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_T: tl.constexpr,
    MODE: tl.constexpr,
):
    num_blocks: tl.constexpr = (WIDTH + BLOCK_W - 1) // BLOCK_W
    # A bucket's unused spans come last and are empty: nobody reads their rows, so they are not computed.
    spans = tl.arange(0, SPANS_POW2)
    starts = tl.load(spans_ptr + 2 * spans, mask=spans < num_spans, other=0)
    ends = tl.load(spans_ptr + 2 * spans + 1, mask=spans < num_spans, other=0)
    num_used = tl.max(tl.where(ends > starts, spans + 1, 0))
    for item in range(tl.program_id(0), num_used * num_blocks, tl.num_programs(0)):
        span = item // num_blocks
        columns = (item % num_blocks) * BLOCK_W + tl.arange(0, BLOCK_W)
        mask = columns < WIDTH
        start = tl.load(spans_ptr + 2 * span)
        end = tl.load(spans_ptr + 2 * span + 1)
        if MODE == 1:
            rows = tl.arange(0, BLOCK_T)
            sums = tl.zeros((BLOCK_T, BLOCK_W), tl.float32)
            for first in range(start, end, BLOCK_T):
                tokens = (first + rows).to(tl.int64)
                pointers = hidden_ptr + tokens[:, None] * WIDTH + columns[None, :]
                sums += tl.load(pointers, mask=(tokens < end)[:, None] & mask[None, :], other=0.0).to(tl.float32)
            out = tl.sum(sums, axis=0) / tl.maximum(end - start, 1).to(tl.float32)
        else:
            token = (start if MODE == 0 else end - 1).to(tl.int64)
            out = tl.load(hidden_ptr + token * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + span * WIDTH + columns, out, mask=mask)


@triton.jit
def _finalize_kernel(
    vectors_ptr,  # float32[num_spans, WIDTH]
    dimensions_ptr,  # int32[num_spans]
    normalize_ptr,  # int32[num_spans]
    out_ptr,  # float32[num_spans, WIDTH]
    finite_ptr,  # uint8[num_spans]
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
):
    span = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_POW2)
    kept = columns < tl.load(dimensions_ptr + span)
    vector = tl.load(vectors_ptr + span * WIDTH + columns, mask=kept & (columns < WIDTH), other=0.0)
    norm = tl.sqrt(tl.sum(vector * vector))
    divisor = tl.where(tl.load(normalize_ptr + span) != 0, tl.maximum(norm, _MIN_NORM), 1.0)
    tl.store(out_ptr + span * WIDTH + columns, vector / divisor, mask=columns < WIDTH)
    # NaN and infinity both fail this comparison.
    tl.store(finite_ptr + span, (norm < float("inf")).to(tl.uint8))


def pool(hidden_states: torch.Tensor, spans: torch.Tensor, mode: Pooling) -> torch.Tensor:
    """float32[num_spans, width] from contiguous [num_tokens, width] and int32[num_spans, 2].

    A mean is cut into narrow columns, so that even one long span keeps many programs reading. Rows of empty spans at
    the end are left unwritten.
    """
    num_spans, width = len(spans), hidden_states.shape[1]
    out = torch.empty((num_spans, width), dtype=torch.float32, device=hidden_states.device)
    block = min(32 if mode is Pooling.MEAN else 1024, triton.next_power_of_2(width))
    _pool_kernel[(min(num_spans * triton.cdiv(width, block), _MAX_PROGRAMS),)](
        hidden_states,
        spans,
        out,
        num_spans,
        SPANS_POW2=triton.next_power_of_2(num_spans),
        WIDTH=width,
        BLOCK_W=block,
        BLOCK_T=256,
        MODE=_MODES[mode],
        num_warps=8 if mode is Pooling.MEAN else 4,
    )
    return out


def finalize_dense(
    vectors: torch.Tensor, dimensions: torch.Tensor, normalize: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(float32[num_spans, width], bool[num_spans] finite); see `Ops.finalize_dense`."""
    out = torch.empty_like(vectors)
    finite = torch.empty(len(vectors), dtype=torch.bool, device=vectors.device)
    finalize_dense_into(vectors, dimensions, normalize.int(), out=out, finite=finite.view(torch.uint8))
    return out, finite


def finalize_dense_into(
    vectors: torch.Tensor,
    dimensions: torch.Tensor,
    normalize: torch.Tensor,
    *,
    out: torch.Tensor,
    finite: torch.Tensor,
) -> None:
    """The same for `normalize` int32[num_spans], written to `out` float32[num_spans, width] and `finite`
    uint8[num_spans]."""
    num_spans, width = vectors.shape
    _finalize_kernel[(num_spans,)](
        vectors,
        dimensions,
        normalize,
        out,
        finite,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        num_warps=4,
    )
