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
    """One attention implementation, for every token bucket."""

    def plan(self, layout: SequenceLayout, num_tokens: int, slot: int) -> None:
        """What must be done on the host for a batch that is about to run in the bucket of `num_tokens`; `slot` names
        host memory that no earlier step still reads. Enqueues on the current stream, outside any graph."""
        ...

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        """What a model calls in the bucket of `num_tokens`. `cu_seqlens` is int32[num_rows + 1] on the device, and is
        read anew at every replay; unused sequences at its end are empty. Enqueues whatever planning takes."""
        ...


BACKENDS = {
    "triton": "rosebed.rose.cuda.attention:TritonAttention",
    "flashinfer-fa3": "rosebed.rose.cuda.flashinfer:FlashInferAttention",
    "fa3": "rosebed.rose.cuda.fa3:Fa3Attention",
}
"""Name → module:class. The class takes (spec, device), and raises ConfigError for what it cannot do."""

LONG_LEAST_TOKENS = 1024
LONG_LEAST_LENGTH = {"flashinfer-fa3": {64: 2048, 128: 512}, "fa3": {64: 3072, 128: 1024}}
"""Backend → head size → sequence length from which it beats our kernel (H200, bf16). The first installed is used."""
IDLE_LEAST_LENGTH = {64: 2048, 128: 1024}
"""The same for a step that nothing runs before: a plan on the host then delays it, by 0.1 to 0.5 ms."""


def sequence_capacity(num_tokens: int) -> int:
    """Sequences that the graphs of long-sequence backends hold: with more, none of them can be long."""
    return max(16, num_tokens // 64)


def tokens_for_sequences(num_sequences: int) -> int:
    """The least bucket in which such a backend takes so many sequences."""
    return 64 * num_sequences if num_sequences > 16 else 0


def create_attentions(name: str, spec: AttentionSpec, device: torch.device) -> dict[str, GraphAttention]:
    """The backends to serve with: the one asked for, or for auto all that are installed and fit."""
    if name != "auto":
        return {name: create_attention(name, spec, device)}
    found: dict[str, GraphAttention] = {}
    for candidate in BACKENDS:
        with suppress(ConfigError):
            found[candidate] = create_attention(candidate, spec, device)
    if not found:
        raise ConfigError(f"--attention: none of {', '.join(BACKENDS)} computes {spec}")
    return found


def create_attention(name: str, spec: AttentionSpec, device: torch.device) -> GraphAttention:
    """One backend. ConfigError if it is unknown, not installed, or cannot compute `spec`."""
    if name not in BACKENDS:
        raise ConfigError(f"--attention {name!r} does not run on CUDA; auto, {', '.join(BACKENDS)} do")
    module, _, class_name = BACKENDS[name].partition(":")
    return cast(GraphAttention, getattr(import_module(module), class_name)(spec, device))


def choose_attention(
    attentions: Mapping[str, GraphAttention], spec: AttentionSpec, layout: SequenceLayout, *, idle: bool
) -> str:
    """The fastest of `attentions` for one batch; `idle` where no step is in flight."""
    short, long = attention_pair(attentions)
    if long is None or short is None or layout.num_tokens < LONG_LEAST_TOKENS:
        return short or next(iter(attentions))
    if layout.num_sequences > sequence_capacity(layout.num_tokens):
        return short
    lengths = np.diff(layout.cu_seqlens).astype(np.int64)
    # Work grows with the square of a length, so long sequences decide.
    typical = int((lengths * lengths).sum()) // layout.num_tokens
    least = LONG_LEAST_LENGTH[long][spec.head_dim]
    if idle:
        least = max(least, IDLE_LEAST_LENGTH[spec.head_dim])
    return long if typical >= least else short


def attention_pair(attentions: Mapping[str, GraphAttention]) -> tuple[str | None, str | None]:
    """(the backend for short sequences, the one for long ones), None where there is none."""
    long = next((name for name in LONG_LEAST_LENGTH if name in attentions), None)
    return ("triton" if "triton" in attentions else None), long


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

    def plan(self, layout: SequenceLayout, num_tokens: int, slot: int) -> None:
        """Nothing: the work list is made on the device."""

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
