"""A batch as one block of int32 words: written into pinned memory on the host, copied once, read as views by a graph.

The order is ids, positions, token types, spans, dimensions, normalise flags, attention plan; the key fixes each size,
so a captured graph's views stay valid for every batch it serves.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rosebed.core.model_spec import ModelSpec
from rosebed.core.types import Batch, Int32Array
from rosebed.rose.cuda.attention import GraphAttention
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.heads.dense import DenseRows


@dataclass(frozen=True, slots=True)
class WordLayout:
    """Where each input starts in the block."""

    num_tokens: int
    num_rows: int
    has_token_types: bool
    attention_words: int

    @classmethod
    def of(cls, key: GraphKey, attention: GraphAttention, *, has_token_types: bool) -> "WordLayout":
        return cls(key.num_tokens, key.num_rows, has_token_types, attention.num_words(key.num_tokens, key.num_rows))

    @property
    def spans_start(self) -> int:
        return self.num_tokens * (3 if self.has_token_types else 2)

    @property
    def attention_start(self) -> int:
        return self.spans_start + 4 * self.num_rows

    @property
    def num_words(self) -> int:
        return self.attention_start + self.attention_words


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Views of the device block that the kernels of one graph read."""

    input_ids: Tensor
    """int32[num_tokens]"""
    positions: Tensor
    """int32[num_tokens]"""
    token_type_ids: Tensor | None
    """int32[num_tokens]"""
    spans: Tensor
    """int32[num_rows, 2]; unused rows are empty spans."""
    dimensions: Tensor
    """int32[num_rows]"""
    normalize: Tensor
    """int32[num_rows], 0 or 1"""
    attention_words: Tensor
    """int32[attention_words]"""

    @classmethod
    def view(cls, words: Tensor, layout: WordLayout) -> "StepInputs":
        tokens, rows, start = layout.num_tokens, layout.num_rows, layout.spans_start
        return cls(
            input_ids=words[:tokens],
            positions=words[tokens : 2 * tokens],
            token_type_ids=words[2 * tokens : 3 * tokens] if layout.has_token_types else None,
            spans=words[start : start + 2 * rows].view(rows, 2),
            dimensions=words[start + 2 * rows : start + 3 * rows],
            normalize=words[start + 3 * rows : start + 4 * rows],
            attention_words=words[layout.attention_start : layout.num_words],
        )


def write_batch(
    words: Int32Array, layout: WordLayout, batch: Batch, rows: DenseRows, attention: GraphAttention
) -> None:
    """Fill the block for one batch. Padding tokens are id 0 at position 0; padding rows are empty spans."""
    tokens, n, start = layout.num_tokens, batch.num_tokens, layout.spans_start
    words[: layout.attention_start] = 0
    words[:n] = batch.token_ids
    words[tokens : tokens + n] = batch.layout.positions
    if layout.has_token_types and batch.token_type_ids is not None:
        words[2 * tokens : 2 * tokens + n] = batch.token_type_ids
    num_rows, capacity = len(rows.owners), layout.num_rows
    words[start : start + 2 * num_rows] = rows.spans.reshape(-1)
    words[start + 2 * capacity : start + 2 * capacity + num_rows] = rows.dimensions
    words[start + 3 * capacity : start + 3 * capacity + num_rows] = rows.normalize
    attention.plan_into(batch.layout, tokens, words[layout.attention_start : layout.num_words])


def has_token_types(spec: ModelSpec) -> bool:
    """Whether token types are an input at all."""
    return spec.type_vocab_size > 1


def pinned(num: int, dtype: torch.dtype) -> tuple[Tensor, np.ndarray]:
    """A page-locked buffer as a tensor, and the same memory as an array."""
    tensor = torch.zeros(num, dtype=dtype, pin_memory=True)
    return tensor, tensor.numpy()
