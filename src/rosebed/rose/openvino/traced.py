"""A model and its attention, over rows of one length, in the form that can be traced. Knows torch alone."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rosebed.core.model_spec import Pooling
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.loader import LoadedModel


class RowsAttention:
    """`Attention` of sequences over themselves, each in a row of its own, padded at its end."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec
        self._slots = self._padding = self._places = torch.empty(0)
        self._masks: list[tuple[Tensor | None, Tensor | None]] = []  # (relative bias, the mask made of it)

    def begin(self, slots: Tensor, padding: Tensor, places: Tensor) -> None:
        """What the next calls are about, as `TracedModel.forward` takes it."""
        self._slots, self._padding, self._places = slots, padding, places
        self._masks.clear()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        spec = self._spec
        mask = self._mask(relative_bias)
        q, k, v = self._rows(q), self._of_each_query(self._rows(k)), self._of_each_query(self._rows(v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        flat = out.transpose(1, 2).reshape(-1, spec.num_heads * spec.head_dim)
        return flat.index_select(0, self._places).reshape(-1, spec.num_heads, spec.head_dim)

    def _rows(self, x: Tensor) -> Tensor:
        """[num_rows, heads, length, head_dim] of packed [T, heads, head_dim]."""
        num_rows, length = self._slots.shape[0], self._slots.shape[1]
        gathered = x.reshape(-1, x.shape[1] * x.shape[2]).index_select(0, self._slots.flatten())
        return gathered.reshape(num_rows, length, x.shape[1], x.shape[2]).transpose(1, 2)

    def _of_each_query(self, x: Tensor) -> Tensor:
        """Keys or values, once for each query head that they serve."""
        num_heads, num_kv_heads = self._spec.num_heads, self._spec.num_kv_heads
        if num_heads == num_kv_heads:
            return x
        num_rows, length = self._slots.shape[0], self._slots.shape[1]
        x = x.unsqueeze(2).expand(-1, -1, num_heads // num_kv_heads, -1, -1)
        return x.reshape(num_rows, num_heads, length, self._spec.head_dim)

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
        if spec.causal and spec.window is None and relative_bias is None:
            return None
        mask = self._padding[:, None, None, :]
        positions = torch.arange(self._slots.shape[1])
        distance = positions[None, :] - positions[:, None]  # key minus query
        if relative_bias is not None:
            mask = mask + relative_bias[:, distance + relative_bias.shape[1] // 2]
        if spec.causal:
            mask = mask.masked_fill(distance > 0, -torch.inf)
        if spec.window is not None:
            mask = mask.masked_fill(distance.abs() > spec.window, -torch.inf)
        return mask


class TracedModel(nn.Module):
    """`EncoderModel` on packed tokens, of which attention makes rows. No real token sees what pads those."""

    def __init__(self, loaded: LoadedModel, *, makes_vectors: bool) -> None:
        super().__init__()
        self.model = loaded.model
        self.dense = loaded.dense if makes_vectors else None
        self.attention = RowsAttention(loaded.model.attention_spec)
        self.has_token_types = loaded.has_token_types

    def forward(
        self,
        input_ids: Tensor,  # int32[T]
        positions: Tensor,  # int32[T], as `EncoderModel.positions` makes them
        places: Tensor,  # int32[T]: where each token lies in the rows, end to end
        slots: Tensor,  # int32[num_rows, length]: the token in each place of the rows, any where they are padded
        padding: Tensor,  # float32[num_rows, length]: 0 for tokens, minus infinity for what pads
        token_type_ids: Tensor | None = None,  # int32[T], if the model has token types
    ) -> tuple[Tensor, ...]:
        """[T, hidden], and, if so asked, [num_rows, dim] of whole sequences, not normalised."""
        self.attention.begin(slots, padding, places)
        hidden_states = self.model(input_ids, positions, token_type_ids, self.attention)
        if self.dense is None:
            return (hidden_states,)
        rows = hidden_states.index_select(0, slots.flatten())
        rows = rows.reshape(slots.shape[0], slots.shape[1], hidden_states.shape[1])
        return hidden_states, self.dense.project(pooled(rows, padding, self.dense.pooling))

    def example(self) -> tuple[Tensor, ...]:
        """Arguments to trace with: sequences of three tokens and of two."""
        ids = torch.zeros(5, dtype=torch.int32)
        places = torch.tensor([0, 1, 2, 3, 4], dtype=torch.int32)
        slots = torch.tensor([[0, 1, 2], [3, 4, 3]], dtype=torch.int32)
        padding = torch.tensor([[0, 0, 0], [0, 0, -torch.inf]])
        positions = torch.tensor([0, 1, 2, 0, 1], dtype=torch.int32)
        given = (ids, positions, places, slots, padding)
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
