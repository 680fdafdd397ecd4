"""Attention backends that a CUDA graph can hold: their plan is a handful of int32 words copied in with the batch."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.ops.triton.attention import AttentionTiles, max_tiles, ragged_attention, work_list


class GraphAttention(Protocol):
    """One attention implementation, for every token bucket."""

    def num_words(self, num_tokens: int, num_sequences: int) -> int:
        """int32 words that the plan of any batch within these bounds takes."""
        ...

    def plan_into(self, layout: SequenceLayout, num_tokens: int, words: Int32Array) -> None:
        """Write the plan of `layout`, to be run in the bucket of `num_tokens`, to the start of `words`."""
        ...

    def bind(self, words: Tensor, num_tokens: int, num_sequences: int) -> Attention:
        """What a model calls in that bucket: reads its plan from `words`, int32 on the device, at every replay."""
        ...


class TritonAttention:
    """Our own kernel: the grid is fixed by the bucket, the work list is data."""

    def __init__(self, spec: AttentionSpec, device: torch.device) -> None:
        dim = spec.head_dim
        if dim < 16 or dim & (dim - 1):
            raise ConfigError(f"--attention triton needs a head size that is a power of two from 16 on, not {dim}")
        properties = torch.cuda.get_device_properties(device)
        self._spec = spec
        self._num_sms = properties.multi_processor_count
        self._pdl = properties.major >= 9

    def num_words(self, num_tokens: int, num_sequences: int) -> int:
        block_q = attention_tiles(self._spec, num_tokens).block_q
        return 1 + 3 * max_tiles(num_tokens, num_sequences, block_q)

    def plan_into(self, layout: SequenceLayout, num_tokens: int, words: Int32Array) -> None:
        work = work_list(layout, attention_tiles(self._spec, num_tokens).block_q)
        words[: len(work)] = work

    def bind(self, words: Tensor, num_tokens: int, num_sequences: int) -> Attention:
        tiles = attention_tiles(self._spec, num_tokens)
        items = self._spec.num_heads * max_tiles(num_tokens, num_sequences, tiles.block_q)
        num_programs = min(items, self._num_sms * (2 if num_tokens <= 512 else 4))

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:
            return ragged_attention(
                q,
                k,
                v,
                words,
                self._spec,
                tiles=tiles,
                num_programs=num_programs,
                pdl=self._pdl,
                relative_bias=relative_bias,
            )

        return BoundAttention(forward)


class BoundAttention:
    """`Attention` whose plan already lies on the device."""

    def __init__(self, forward: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]) -> None:
        self._forward = forward

    def forward(self, q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None = None) -> Tensor:
        return self._forward(q, k, v, relative_bias)


def attention_tiles(spec: AttentionSpec, num_tokens: int) -> AttentionTiles:
    """How to cut scores in a bucket of `num_tokens`.

    Measured on one H200, bf16 (µs per layer; bge 16 x 64, pplx 16/8 x 128 heads): 1 x 128 tokens 3.6 / 4.4 with 16
    queries a tile against 3.7 / 4.8 with 64; 1 x 512 8.0 / 10.8; 8 x 512 30.4 / 54.2.
    """
    wide = spec.head_dim > 64
    if num_tokens <= 32:
        return AttentionTiles(block_q=16, block_k=32, num_warps=4, num_stages=2)
    if num_tokens <= 192:
        return AttentionTiles(block_q=16, block_k=128, num_warps=4, num_stages=2)
    if num_tokens <= 1024 or wide:
        return AttentionTiles(block_q=64, block_k=64 if wide and num_tokens > 768 else 128, num_warps=4, num_stages=3)
    return AttentionTiles(block_q=128, block_k=64, num_warps=8, num_stages=3)
