"""Positions as RoBERTa and its kin count them, where a padding token may stand in the text. Pure numpy."""

import numpy as np

from rosebed.core.types import Int32Array, SequenceLayout


def counted_positions(layout: SequenceLayout, token_ids: Int32Array, padding_idx: int) -> Int32Array:
    """int32[T]: 1…n in each sequence, except that a `padding_idx` among the ids gets 0 and is not counted.

    That is fairseq's rule, and transformers': a text can spell the padding token ("<pad>"), and models were trained so.
    """
    is_padding = token_ids == padding_idx
    if not is_padding.any():
        return layout.positions + np.int32(1)
    running = np.zeros(layout.num_tokens + 1, np.int32)
    np.cumsum(~is_padding, out=running[1:])
    lengths = np.diff(layout.cu_seqlens)
    positions = running[1:] - np.repeat(running[layout.cu_seqlens[:-1]], lengths)
    positions[is_padding] = 0
    return positions
