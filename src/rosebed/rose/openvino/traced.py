"""A model and its attention as functions of rows of equal length, in the form that can be traced. Knows torch alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rosebed.core.model_spec import Pooling
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.loader import LoadedModel


class RowsAttention:
    """`Attention` of num_rows sequences over themselves, each padded at its end to the same length."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec
        self._shape: torch.Size | tuple[int, int] = (0, 0)
        self._padding: Tensor | None = None
        self._masks: list[tuple[Tensor | None, Tensor | None]] = []  # (relative bias, the mask made of it)

    def begin(self, shape: torch.Size, padding: Tensor) -> None:
        """What the next calls are about: [num_rows, length], and what `TracedModel.forward` calls `padding`."""
        self._shape, self._padding = shape, padding
        self._masks.clear()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        num_rows, length = self._shape
        spec = self._spec
        per_kv_head = spec.num_heads // spec.num_kv_heads

        def by_head(x: Tensor, num_heads: int) -> Tensor:
            return x.reshape(num_rows, length, num_heads, spec.head_dim).transpose(1, 2)

        def of_each_query(x: Tensor) -> Tensor:
            x = by_head(x, spec.num_kv_heads)
            if per_kv_head == 1:
                return x
            x = x.unsqueeze(2).expand(-1, -1, per_kv_head, -1, -1)
            return x.reshape(num_rows, spec.num_heads, length, spec.head_dim)

        mask = self._mask(relative_bias)
        out = F.scaled_dot_product_attention(
            by_head(q, spec.num_heads), of_each_query(k), of_each_query(v), attn_mask=mask, is_causal=mask is None
        )
        return out.transpose(1, 2).reshape(num_rows * length, spec.num_heads, spec.head_dim)

    def _mask(self, relative_bias: Tensor | None) -> Tensor | None:
        """What is added to the scores: one for all layers. None where causality is all: padding comes last."""
        for of, mask in self._masks:
            if of is relative_bias:
                return mask
        mask = self._make_mask(relative_bias)
        self._masks.append((relative_bias, mask))
        return mask

    def _make_mask(self, relative_bias: Tensor | None) -> Tensor | None:
        spec = self._spec
        assert self._padding is not None
        if spec.causal and spec.window is None and relative_bias is None:
            return None
        mask = self._padding[:, None, None, :]
        positions = torch.arange(self._shape[1])
        distance = positions[None, :] - positions[:, None]  # key minus query
        if relative_bias is not None:
            mask = mask + relative_bias[:, distance + relative_bias.shape[1] // 2]
        if spec.causal:
            mask = mask.masked_fill(distance > 0, -torch.inf)
        if spec.window is not None:
            mask = mask.masked_fill(distance.abs() > spec.window, -torch.inf)
        return mask


class TracedModel(nn.Module):
    """`EncoderModel` on rows: padding stays where it is, and no real token sees it."""

    def __init__(self, loaded: LoadedModel, *, makes_vectors: bool) -> None:
        super().__init__()
        self.model = loaded.model
        self.dense = loaded.dense if makes_vectors else None
        self.attention = RowsAttention(loaded.model.attention_spec)
        self.has_token_types = loaded.has_token_types

    def forward(
        self,
        input_ids: Tensor,  # int32[num_rows, length]
        positions: Tensor,  # int32[num_rows, length], as `EncoderModel.positions` makes them
        padding: Tensor,  # float32[num_rows, length]: 0 for tokens, minus infinity for what pads
        token_type_ids: Tensor | None = None,  # int32[num_rows, length], if the model has token types
    ) -> tuple[Tensor, ...]:
        """[num_rows · length, hidden], and, if so asked, [num_rows, dim] of whole rows, not normalised."""
        self.attention.begin(input_ids.shape, padding)
        types = None if token_type_ids is None else token_type_ids.flatten()
        hidden_states = self.model(input_ids.flatten(), positions.flatten(), types, self.attention)
        if self.dense is None:
            return (hidden_states,)
        rows = hidden_states.reshape(input_ids.shape[0], input_ids.shape[1], hidden_states.shape[1])
        return hidden_states, self.dense.project(pooled(rows, padding, self.dense.pooling))

    def example(self) -> tuple[Tensor, ...]:
        """Arguments to trace with."""
        ids = torch.zeros((2, 3), dtype=torch.int32)
        positions = torch.arange(3, dtype=torch.int32).repeat(2, 1)
        given = (ids, positions, torch.zeros(2, 3))
        return (*given, torch.zeros_like(ids)) if self.has_token_types else given


def pooled(rows: Tensor, padding: Tensor, mode: Pooling) -> Tensor:
    """[num_rows, hidden] of hidden states [num_rows, length, hidden]; `padding` as `TracedModel.forward` takes it."""
    is_token = (padding == 0).to(rows.dtype)
    match mode:
        case Pooling.CLS:
            return rows[:, 0]
        case Pooling.MEAN:
            weights = is_token / is_token.sum(1, keepdim=True)
            # What pads is finite, since it is a token's.
            return torch.bmm(weights.unsqueeze(1), rows).squeeze(1)
        case Pooling.LAST:
            after = torch.nn.functional.pad(is_token[:, 1:], (0, 1))
            return torch.bmm((is_token - after).unsqueeze(1), rows).squeeze(1)
