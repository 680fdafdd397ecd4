"""Attention backends that a CUDA graph can hold, and ours among them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention_choice import AttentionChoice, AttentionRows, AttentionShape
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.ops.triton.attention import AttentionTiles, build_work_list, max_tiles, ragged_attention

_logger = logging.getLogger(__name__)


class GraphAttention(Protocol):
    """One attention implementation, for every token bucket."""

    def plan(self, layout: SequenceLayout, key: GraphKey, slot: int) -> None:
        """What must be done on the host for a batch that is about to run with `key`; `slot` names host memory that no
        earlier step still reads. Enqueues on the current stream, outside any graph."""
        ...

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        """What a model calls in the bucket of `num_tokens`. `cu_seqlens` is int32[attended_sequences + 1] on the
        device, and is read anew at every replay; unused sequences at its end are empty. Enqueues whatever planning
        takes."""
        ...


BACKENDS = {
    "triton": "rosebed.rose.cuda.attention:TritonAttention",
    "torch-varlen": "rosebed.rose.cuda.torch_varlen:TorchVarlenAttention",
    "flashinfer-fa2": "rosebed.rose.cuda.flashinfer:FlashInferFa2Attention",
    "flashinfer-fa3": "rosebed.rose.cuda.flashinfer:FlashInferFa3Attention",
    "fa3": "rosebed.rose.cuda.fa3:Fa3Attention",
    "fa4": "rosebed.rose.cuda.fa4:Fa4Attention",
}
"""Name → module:class. The class takes (spec, device, dtype), and raises ConfigError for what it cannot do."""


@dataclass(frozen=True, slots=True)
class AttentionSet:
    """The backends that one engine serves with."""

    backends: Mapping[str, GraphAttention]
    choice: AttentionChoice

    def choose(self, layout: SequenceLayout, *, idle: bool) -> str:
        """The name of the fastest for one batch; `idle` where no step is in flight."""
        if sole := self.choice.sole(layout.num_tokens):
            return sole
        lengths = np.diff(layout.cu_seqlens).astype(np.int64)
        # Work grows with the square of a length, so long sequences decide.
        typical = int((lengths * lengths).sum()) // layout.num_tokens
        return self.choice.choose(layout.num_tokens, layout.num_sequences, typical, idle=idle)


def create_attentions(
    name: str, spec: AttentionSpec, device: torch.device, dtype: torch.dtype, rows: AttentionRows
) -> AttentionSet:
    """The backend asked for, or for auto all that are installed, fit, and are the fastest somewhere by `rows`."""
    if name != "auto":
        chosen = AttentionChoice((name,), spec.head_dim)
        return AttentionSet({name: create_attention(name, spec, device, dtype)}, chosen)
    shape = AttentionShape(spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.causal)
    # Times are of whole sequences, without a window or a bias.
    measured = () if spec.window is not None or spec.relative_bias else rows.get(shape, ())
    names, found = list(BACKENDS), dict[str, GraphAttention]()
    # One that cannot be had leaves its place to the next fastest, so several rounds may be needed.
    while names and (wanted := AttentionChoice(tuple(names), spec.head_dim, measured).least_tokens()):
        missing = [candidate for candidate in wanted if candidate not in found]
        if not missing:
            kept = tuple(candidate for candidate in names if candidate in wanted)
            return AttentionSet(found, AttentionChoice(kept, spec.head_dim, measured))
        for candidate in missing:
            try:
                found[candidate] = create_attention(candidate, spec, device, dtype)
            except ConfigError as error:
                _logger.debug("not for --attention auto: %s", error)
                names.remove(candidate)
    raise ConfigError(f"--attention: none of {', '.join(BACKENDS)} computes {spec}")


def create_attention(name: str, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> GraphAttention:
    """One backend. ConfigError if it is unknown, not installed, or cannot compute `spec` in `dtype` on `device`."""
    if name not in BACKENDS:
        raise ConfigError(f"--attention {name!r} does not run on CUDA; auto, {', '.join(BACKENDS)} do")
    module, _, class_name = BACKENDS[name].partition(":")
    return cast(GraphAttention, getattr(import_module(module), class_name)(spec, device, dtype))


class TritonAttention:
    """Our own kernel: the grid is fixed by the bucket, the work list is data."""

    def __init__(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:  # noqa: ARG002
        dim = spec.head_dim
        if dim < 16 or dim & (dim - 1):
            raise ConfigError(f"--attention triton needs a head size that is a power of two from 16 on, not {dim}")
        properties = torch.cuda.get_device_properties(device)
        self._spec = spec
        self._num_sms = properties.multi_processor_count
        self._pdl = properties.major >= 9

    def plan(self, layout: SequenceLayout, key: GraphKey, slot: int) -> None:
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
