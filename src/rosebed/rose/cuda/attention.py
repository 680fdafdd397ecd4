"""Attention backends that a CUDA graph can hold, and which of them is used when."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.ops.triton.attention import AttentionTiles, build_work_list, max_tiles, ragged_attention


class GraphAttention(Protocol):
    """One attention implementation, for every token bucket. Its plan is made on the device, inside the graph."""

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        """What a model calls in the bucket of `num_tokens`. `cu_seqlens` is int32[num_rows + 1] on the device, and is
        read anew at every replay; unused sequences at its end are empty. Enqueues whatever planning takes."""
        ...


_BACKENDS = {
    "triton": "rosebed.rose.cuda.attention:TritonAttention",
    "fa3": "rosebed.rose.cuda.fa3:Fa3Attention",
}
"""Name → module:class. The class takes (spec, device), and raises ConfigError for what it cannot do."""

FA3_LEAST_TOKENS = 1024
FA3_LEAST_LENGTH = {64: 1024, 128: 1024}
"""Head size → sequence length from which FlashAttention-3 beats our kernel (H200, bf16)."""


def create_attentions(name: str, spec: AttentionSpec, device: torch.device) -> dict[str, GraphAttention]:
    """The backends to serve with: the one asked for, or for auto all that are installed and fit."""
    if name != "auto":
        return {name: create_attention(name, spec, device)}
    found: dict[str, GraphAttention] = {}
    for candidate in _BACKENDS:
        with suppress(ConfigError):
            found[candidate] = create_attention(candidate, spec, device)
    if not found:
        raise ConfigError(f"--attention: none of {', '.join(_BACKENDS)} computes {spec}")
    return found


def create_attention(name: str, spec: AttentionSpec, device: torch.device) -> GraphAttention:
    """One backend. ConfigError if it is unknown, not installed, or cannot compute `spec`."""
    if name not in _BACKENDS:
        raise ConfigError(f"--attention {name!r} does not run on CUDA; auto, {', '.join(_BACKENDS)} do")
    module, _, class_name = _BACKENDS[name].partition(":")
    return cast(GraphAttention, getattr(import_module(module), class_name)(spec, device))


def choose_attention(attentions: Mapping[str, GraphAttention], spec: AttentionSpec, layout: SequenceLayout) -> str:
    """The fastest of `attentions` for one batch."""
    if "fa3" not in attentions or layout.num_tokens < FA3_LEAST_TOKENS:
        return next(iter(attentions))
    lengths = np.diff(layout.cu_seqlens).astype(np.int64)
    # Work grows with the square of a length, so long sequences decide.
    typical = int((lengths * lengths).sum()) // layout.num_tokens
    least = FA3_LEAST_LENGTH[spec.head_dim]
    return "fa3" if typical >= least or len(attentions) == 1 else "triton"


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

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        tiles = attention_tiles(self._spec, num_tokens)
        items = self._spec.num_heads * max_tiles(num_tokens, len(cu_seqlens) - 1, tiles.block_q)
        num_programs = min(items, self._num_sms * (2 if num_tokens <= 512 else 4))
        work = build_work_list(cu_seqlens, num_tokens, tiles.block_q)

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:
            return ragged_attention(
                q,
                k,
                v,
                work,
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
