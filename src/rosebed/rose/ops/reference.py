"""`Ops` in plain torch: the meaning of every operation, right on any device, and what the CPU runs."""

import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.model_spec import Pooling
from rosebed.rose.ops.base import Activation, EmbeddingTables, HeadShape, LayerNormWeights

MIN_NORM = 1e-12
"""Least L2 norm divided by, as in torch.nn.functional.normalize: a zero vector stays zero."""

MOST_SUMMED = 2
"""Spans are summed row by row if they hold no more than this many times the tokens there are."""
PIECE = 64
"""Rows that are summed one after the other."""
COLUMNS = 256
"""Of the hidden states, that running totals are made of at a time."""


def embed_layer_norm(
    input_ids: Tensor,
    positions: Tensor,
    token_type_ids: Tensor | None,
    tables: EmbeddingTables,
    weight: Tensor,
    bias: Tensor,
    eps: float,
) -> Tensor:
    x = F.embedding(input_ids, tables.word) + F.embedding(positions, tables.position)
    if tables.token_type is not None:
        x += tables.token_type[0] if token_type_ids is None else F.embedding(token_type_ids, tables.token_type)
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, x_bias: Tensor | None = None
) -> Tensor:
    """LayerNorm(x + x_bias + residual); x is overwritten."""
    if x_bias is not None:
        x += x_bias
    x += residual
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight, bias)


def linear_add_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: LayerNormWeights) -> Tensor:
    return add_layer_norm(F.linear(x, weight, bias), residual, norm.weight, norm.bias, norm.eps)


def linear_add_rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor, norm_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    return add_rms_norm(F.linear(x, weight), residual, norm_weight, eps)


def linear_activation(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    x = F.linear(x, weight, bias)
    match activation:
        case Activation.GELU:
            return F.gelu(x)
        case Activation.GELU_TANH:
            return F.gelu(x, approximate="tanh")
        case Activation.RELU:
            return F.relu(x)
        case Activation.SILU:
            return F.silu(x)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(RMSNorm(x + residual), x + residual)"""
    residual = residual + x
    return rms_norm(residual, weight, eps), residual


def qk_norm_rope(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    heads: HeadShape,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    num_heads, num_kv_heads, head_dim = heads
    q, k, v = qkv.unflatten(-1, (-1, head_dim)).split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)  # float32[T, 1, head_dim / 2] each
    return _norm_rope(q, q_weight, cos, sin, eps), _norm_rope(k, k_weight, cos, sin, eps), v


def _norm_rope(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    x1, x2 = rms_norm(x.float(), weight, eps).chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).to(x.dtype)


def linear_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.silu(gate) * up


def pool(hidden_states: Tensor, spans: Tensor, mode: Pooling) -> Tensor:
    match mode:
        case Pooling.CLS:
            return hidden_states[spans[:, 0]].float()
        case Pooling.LAST:
            return hidden_states[spans[:, 1] - 1].float()
        case Pooling.MEAN:
            return _span_means(hidden_states, spans)


def _span_means(hidden_states: Tensor, spans: Tensor) -> Tensor:
    """float32[num_spans, hidden]: the mean of each span's rows, in time and memory that overlaps do not add to.

    Spans that share few tokens are summed each; others are differences of running totals. NOTE: reads the spans on the
    host; a CUDA graph needs a twin.
    """
    starts, ends = spans.long().unbind(1)
    lengths = ends - starts
    if int(lengths.sum()) <= MOST_SUMMED * len(hidden_states):
        sums = _separate_sums(hidden_states.float(), starts, lengths)
    else:
        sums = _running_sums(hidden_states, starts, ends)
    return sums / lengths.unsqueeze(1)


def _separate_sums(hidden_states: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """In pieces, then over the pieces: one long sum in float32 would lose digits."""
    firsts = lengths.cumsum(0) - lengths
    rows = torch.repeat_interleave(starts - firsts, lengths)  # int64[sum of lengths]: of all spans, end to end
    rows += torch.arange(len(rows), device=rows.device)
    num_pieces = (lengths + PIECE - 1) // PIECE
    first_pieces = num_pieces.cumsum(0) - num_pieces
    pieces = torch.repeat_interleave(firsts - PIECE * first_pieces, num_pieces)  # int64[all pieces]: where each starts
    numbers = torch.arange(len(pieces), device=rows.device)
    sums = F.embedding_bag(rows, hidden_states, pieces + PIECE * numbers, mode="sum")
    return F.embedding_bag(numbers, sums, first_pieces, mode="sum")


def _running_sums(hidden_states: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """In float64, in which totals over any sequence keep more digits than float32 has, some columns at a time.

    Rows that are not finite must not spoil the spans that come after them, so they are counted, not added.
    """
    is_finite = hidden_states.isfinite().all(1, keepdim=True)
    num_spoilt = _running_totals((~is_finite).long())
    sums = [
        (totals[ends] - totals[starts]).float()
        for columns in hidden_states.split(COLUMNS, dim=1)
        for totals in [_running_totals(torch.where(is_finite, columns, 0).double())]
    ]
    return torch.cat(sums, dim=1).masked_fill(num_spoilt[ends] != num_spoilt[starts], torch.nan)


def _running_totals(x: Tensor) -> Tensor:
    """[len(x) + 1, width]; row i sums the first i rows."""
    return F.pad(x.cumsum(0), (0, 0, 1, 0))


def finalize_dense(vectors: Tensor, dimensions: Tensor, normalize: Tensor) -> tuple[Tensor, Tensor]:
    kept = torch.arange(vectors.shape[1], device=vectors.device) < dimensions.unsqueeze(1)
    vectors = torch.where(kept, vectors, 0)
    norms = vectors.norm(dim=1)
    divisors = torch.where(normalize, norms.clamp_min(MIN_NORM), 1)
    return vectors / divisors.unsqueeze(1), torch.isfinite(norms)
