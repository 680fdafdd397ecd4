"""Embedding look-ups, one program per token."""

import torch
import triton
import triton.language as tl

from rosebed.rose.ops.base import EmbeddingTables


@triton.jit
def _embed_layer_norm_kernel(
    ids_ptr,  # int32[num_tokens]
    positions_ptr,  # int32[num_tokens]
    types_ptr,  # int32[num_tokens]
    word_ptr,  # [vocab_size, WIDTH]
    position_ptr,  # [positions, WIDTH]
    type_ptr,  # [types, WIDTH]
    weight_ptr,  # [WIDTH]
    bias_ptr,  # [WIDTH]
    out_ptr,  # [num_tokens, WIDTH]
    eps,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    HAS_TYPE_TABLE: tl.constexpr,
    HAS_TYPES: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_POW2)
    mask = columns < WIDTH
    word = tl.load(ids_ptr + token).to(tl.int64)
    position = tl.load(positions_ptr + token).to(tl.int64)
    x = tl.load(word_ptr + word * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(position_ptr + position * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    if HAS_TYPE_TABLE:
        if HAS_TYPES:
            row = tl.load(types_ptr + token).to(tl.int64)
        else:
            row = token * 0
        x += tl.load(type_ptr + row * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / WIDTH
    centred = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / WIDTH + eps)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    out = centred * scale * weight + bias
    tl.store(out_ptr + token * WIDTH + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


def embed_layer_norm(
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    token_type_ids: torch.Tensor | None,
    tables: EmbeddingTables,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """LayerNorm(word + position + type): [num_tokens, width]. Ids are int32[num_tokens]; table rows are contiguous."""
    num_tokens, width = len(input_ids), tables.word.shape[1]
    out = torch.empty((num_tokens, width), dtype=tables.word.dtype, device=tables.word.device)
    _embed_layer_norm_kernel[(num_tokens,)](
        input_ids,
        positions,
        input_ids if token_type_ids is None else token_type_ids,
        tables.word,
        tables.position,
        tables.word if tables.token_type is None else tables.token_type,
        weight,
        bias,
        out,
        eps,
        WIDTH=width,
        WIDTH_POW2=triton.next_power_of_2(width),
        HAS_TYPE_TABLE=tables.token_type is not None,
        HAS_TYPES=token_type_ids is not None,
        num_warps=4,
    )
    return out
