"""FlashInfer's ragged prefill (`flashinfer-python`): its FlashAttention-2 kernels, and those for Hopper.

Its plan is made on the host and copied in before the graph; the graph holds the plan's sizes, so a plan of another
shape than the captured one must not be replayed. Padding tokens form one more sequence: see `varlen`.
"""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError, StepFailed
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention import BoundAttention
from rosebed.rose.cuda.keys import GraphKey, sequence_capacity
from rosebed.rose.cuda.varlen import check_chip, check_package, check_spec, import_backend

_logger = logging.getLogger(__name__)

MODULE = "flashinfer"
REQUIREMENT = "flashinfer-python>=0.6.18"

FLOAT_WORKSPACE_BYTES = 128 << 20
STAGING_BYTES = 8 << 20
"""The sizes that FlashInfer recommends."""
LEAST_INT_BYTES = 1 << 18
"""Of a plan on the device. Each bucket has its own, so that it can keep its plan; twice as much where that is too
little."""
FIRST_TOKENS = 1024
"""Of the bucket that is opened at once, to see whether the kernels load."""

FA2_MOST_TILE = 128
FA2_PROGRAMS = 2
"""Largest tile of queries, and programs a multiprocessor, that its FlashAttention-2 plan counts with."""


@dataclass(slots=True, eq=False)
class _Bucket:
    """One wrapper: FlashInfer ties it to a number of sequences and a most number of rows."""

    wrapper: Any
    floats: Tensor
    """Where parts of results go, if the plan cuts keys."""
    ints: Tensor
    """Where the plan goes."""
    plan_info: list[int]
    """Sizes and offsets that the captured kernels were launched with."""
    planned: Tensor | None = None
    """int32[num_sequences + 2]: the bounds of the plan that the device holds. Texts cut to one length come as the same
    batch again, and planning takes up to half a millisecond."""


class FlashInferAttention:
    """`GraphAttention` over `BatchPrefillWithRaggedKVCacheWrapper`; subclasses say which of its backends."""

    name: ClassVar[str]
    backend: ClassVar[str]
    more_plan_arguments: ClassVar[tuple[object, ...]] = ()
    """Behind those that plans of both backends take."""

    def __init__(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:
        check_package(self.name, MODULE, REQUIREMENT)
        check_chip(self.name, device, hopper_only=self.backend == "fa3")
        check_spec(self.name, spec, dtype)
        self._wrapper_class = import_backend(self.name, MODULE, REQUIREMENT).BatchPrefillWithRaggedKVCacheWrapper
        self._spec = spec
        self._device = device
        self._dtype = dtype
        self._floats = torch.empty(FLOAT_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._staging: dict[int, Tensor] = {}
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        _logger.info("loading FlashInfer's kernels; where none came with it, compiling them takes minutes, once")
        try:
            self._open(FIRST_TOKENS, sequence_capacity(FIRST_TOKENS))
        except Exception as error:
            # It compiles its kernels where none came with it, which needs a CUDA toolkit.
            raise ConfigError(f"--attention {self.name} cannot load its kernels: {error}") from error

    @torch.inference_mode()  # its buffers were made in that mode, during a capture
    def plan(self, layout: SequenceLayout, key: GraphKey, slot: int) -> None:
        bucket = self._bucket(key.num_tokens, key.attended_sequences)
        bounds = _bounds(layout.cu_seqlens, key.num_tokens, key.attended_sequences)
        if bucket.planned is not None and torch.equal(bucket.planned, bounds):
            return
        bucket.planned = None
        plan_info = self._plan(bucket, bounds, key.num_tokens, self._staging_of(slot))
        if bucket.plan_info != plan_info:
            raise StepFailed(f"FlashInfer planned {plan_info} for a graph that holds {bucket.plan_info}")
        bucket.planned = bounds

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        wrapper = self._bucket(num_tokens, len(cu_seqlens) - 1).wrapper

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:  # noqa: ARG001
            return wrapper.run(q, k, v)

        return BoundAttention(forward)

    def _bucket(self, num_tokens: int, num_sequences: int) -> _Bucket:
        return self._buckets.get((num_tokens, num_sequences)) or self._open(num_tokens, num_sequences)

    def _float_bytes(self, num_tokens: int, num_sequences: int) -> int:  # noqa: ARG002
        return FLOAT_WORKSPACE_BYTES

    def _staging_of(self, slot: int) -> Tensor:
        """Page-locked memory that no plan still in flight is copied from."""
        if slot not in self._staging:
            self._staging[slot] = torch.empty(STAGING_BYTES, dtype=torch.uint8, pin_memory=True)
        return self._staging[slot]

    def _open(self, num_tokens: int, num_sequences: int) -> _Bucket:
        """A wrapper for the bucket, with a first plan: one sequence that fills it."""
        num_bytes = self._float_bytes(num_tokens, num_sequences)
        if num_bytes > len(self._floats):
            # NOTE: captured graphs keep the address of what they had, and so do their buckets.
            self._floats = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        bounds = _bounds(np.array((0, num_tokens), np.int32), num_tokens, num_sequences)
        indptr = bounds.to(self._device)
        wrapper = self._wrapper_class(
            self._floats,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=indptr,
            kv_indptr_buf=indptr,
            backend=self.backend,
        )
        ints = self._plan_first(wrapper, bounds)
        plan_info = list(wrapper._plan_info)  # noqa: SLF001
        bucket = self._buckets[num_tokens, num_sequences] = _Bucket(wrapper, self._floats, ints, plan_info)
        return bucket

    def _plan_first(self, wrapper: Any, bounds: Tensor) -> Tensor:
        """Let `wrapper` make its first plan; returns the memory on the device that it is in, no larger than it must be.

        Left alone, each wrapper would keep 16 MB of its own, half of it page-locked.
        """
        num_bytes = LEAST_INT_BYTES
        wrapper._pin_memory_int_workspace_buffer = self._staging_of(0)  # noqa: SLF001
        while True:
            ints = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
            wrapper._int_workspace_buffer = ints  # noqa: SLF001
            try:
                wrapper.plan(
                    bounds,
                    bounds,
                    self._spec.num_heads,
                    self._spec.num_kv_heads,
                    self._spec.head_dim,
                    causal=self._spec.causal,
                    q_data_type=self._dtype,
                )
            except Exception:  # its own kind of error, which says that the buffer is too small
                if num_bytes >= STAGING_BYTES:
                    raise
                num_bytes *= 2
            else:
                return ints

    def _plan(self, bucket: _Bucket, bounds: Tensor, num_tokens: int, staging: Tensor) -> list[int]:
        """What `wrapper.plan` does, less the checks and copies that cost more than the plan itself."""
        wrapper = bucket.wrapper
        wrapper._qo_indptr_buf.copy_(bounds, non_blocking=True)  # noqa: SLF001
        return list(
            wrapper._cached_module.plan(  # noqa: SLF001
                bucket.floats,
                bucket.ints,
                staging,
                bounds,
                bounds,
                bounds.diff(),
                num_tokens,
                len(bounds) - 1,
                self._spec.num_heads,
                self._spec.num_kv_heads,
                1,  # page size
                True,  # for a CUDA graph
                self._spec.head_dim,
                self._spec.head_dim,
                self._spec.causal,
                -1,  # no window
                *self.more_plan_arguments,
            )
        )


class FlashInferFa2Attention(FlashInferAttention):
    """For every GPU from Ampere on. Its kernels read nothing past a sequence's end."""

    name = "flashinfer-fa2"
    backend = "fa2"
    more_plan_arguments = (
        -1,  # size of parts as it likes
        False,  # keys may be cut
        0,  # no programs of others beside its own
        0,  # lengths differ
    )

    def _float_bytes(self, num_tokens: int, num_sequences: int) -> int:
        """Under CUDA graphs it always writes its result in parts, float32, with room for every tile of queries."""
        spec = self._spec
        tiles = -(-num_tokens * (spec.num_heads // spec.num_kv_heads) // FA2_MOST_TILE) + num_sequences + 1
        programs = FA2_PROGRAMS * torch.cuda.get_device_properties(self._device).multi_processor_count
        tiles = max(tiles, programs // spec.num_kv_heads)
        needed = 4 * spec.num_heads * tiles * FA2_MOST_TILE * (spec.head_dim + 1) + 32
        return max(FLOAT_WORKSPACE_BYTES, needed)


class FlashInferFa3Attention(FlashInferAttention):
    """For Hopper."""

    name = "flashinfer-fa3"
    backend = "fa3"


def _bounds(cu_seqlens: Int32Array, num_tokens: int, num_sequences: int) -> Tensor:
    """int32[num_sequences + 2]: sequences, the padding as one more, then empty ones."""
    bounds = np.full(num_sequences + 2, num_tokens, np.int32)
    bounds[: len(cu_seqlens)] = cu_seqlens
    return torch.from_numpy(bounds)
