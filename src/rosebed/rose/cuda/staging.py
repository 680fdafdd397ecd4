"""A batch as one block of int32 words: written into pinned memory on the host, copied once, read as views by a graph.

The order is ids, positions, token types, cu_seqlens, spans, dimensions, normalise flags; the key fixes each size, so a
captured graph's views stay valid for every batch it serves. Knows no stream and no event.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

from rosebed.core.types import Batch, Int32Array, SequenceLayout
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.heads.dense import DenseRows

Block = TypeVar("Block", Tensor, Int32Array)


@dataclass(frozen=True, slots=True, eq=False)
class InputViews(Generic[Block]):
    """The parts of one block, for one key; on the host or on the device."""

    words: Block
    """int32[num_words]: all of it."""
    input_ids: Block
    """int32[num_tokens]; 0 beyond the batch."""
    positions: Block
    """int32[num_tokens]; 0 beyond the batch."""
    token_type_ids: Block | None
    """int32[num_tokens], where the model has types; 0 beyond the batch."""
    cu_seqlens: Block
    """int32[num_rows + 1]; sequences beyond the batch are empty."""
    spans: Block
    """int32[num_rows, 2]; rows beyond the batch are empty spans."""
    dimensions: Block
    """int32[num_rows]"""
    normalize: Block
    """int32[num_rows], 0 or 1"""


def num_words(key: GraphKey, *, has_token_types: bool) -> int:
    """Size of the block in int32 words."""
    return key.num_tokens * (3 if has_token_types else 2) + 5 * key.num_rows + 1


def input_views(words: Block, key: GraphKey, *, has_token_types: bool) -> "InputViews[Block]":
    """Divide the start of `words` as `key` wants it."""
    tokens, rows = key.num_tokens, key.num_rows
    bounds = tokens * (3 if has_token_types else 2)
    spans = bounds + rows + 1
    return InputViews(
        words=words[: num_words(key, has_token_types=has_token_types)],
        input_ids=words[:tokens],
        positions=words[tokens : 2 * tokens],
        token_type_ids=words[2 * tokens : bounds] if has_token_types else None,
        cu_seqlens=words[bounds:spans],
        spans=words[spans : spans + 2 * rows].reshape(rows, 2),
        dimensions=words[spans + 2 * rows : spans + 3 * rows],
        normalize=words[spans + 3 * rows : spans + 4 * rows],
    )


Positions = Callable[[SequenceLayout, Int32Array], Int32Array]
"""An architecture's way to number the tokens of a batch, given their ids."""


def write_batch(views: InputViews[Int32Array], batch: Batch, rows: DenseRows, positions: Positions) -> None:
    """Fill a host block for one batch."""
    num_tokens, num_rows, bounds = batch.num_tokens, len(rows.owners), batch.layout.cu_seqlens
    _concatenate(views.input_ids, [sequence.token_ids for sequence in batch.sequences], num_tokens)
    views.positions[:num_tokens] = positions(batch.layout, views.input_ids[:num_tokens])
    views.positions[num_tokens:] = 0
    if views.token_type_ids is not None:
        types = batch.token_type_ids
        views.token_type_ids[:num_tokens] = 0 if types is None else types
        views.token_type_ids[num_tokens:] = 0
    views.cu_seqlens[: len(bounds)] = bounds
    views.cu_seqlens[len(bounds) :] = num_tokens
    views.spans[:num_rows] = rows.spans
    views.spans[num_rows:] = 0
    views.dimensions[:num_rows] = rows.dimensions
    views.normalize[:num_rows] = rows.normalize


def _concatenate(out: Int32Array, parts: list[Int32Array], size: int) -> None:
    if len(parts) == 1:
        out[:size] = parts[0]
    else:
        np.concatenate(parts, out=out[:size])
    out[size:] = 0
