"""FlashInfer's ragged prefill (`flashinfer-python`), for long sequences on Hopper.

Its plan is made on the host and copied in before the graph; the graph holds the plan's sizes, so a plan of another
shape than the captured one must not be replayed. Padding tokens form one more sequence: keys are loaded past a
sequence's end and only their weights are masked, so every row must be finite.
"""

import importlib.util
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError, StepFailed
from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention import LONG_LEAST_TOKENS, BoundAttention, sequence_capacity

_logger = logging.getLogger(__name__)

FLOAT_WORKSPACE_BYTES = 128 << 20
INT_WORKSPACE_BYTES = 8 << 20
"""The sizes that FlashInfer recommends."""


@dataclass(slots=True, eq=False)
class _Bucket:
    """One wrapper: FlashInfer ties it to a number of sequences and a most number of rows."""

    wrapper: Any
    plan_info: Any
    """Sizes and offsets that the captured kernels were launched with."""


class FlashInferAttention:
    """`GraphAttention` over `BatchPrefillWithRaggedKVCacheWrapper`, backend fa3."""

    def __init__(self, spec: AttentionSpec, device: torch.device) -> None:
        if importlib.util.find_spec("flashinfer") is None:
            raise ConfigError("--attention flashinfer-fa3 needs the package flashinfer-python")
        if torch.cuda.get_device_capability(device) != (9, 0):
            raise ConfigError("--attention flashinfer-fa3 runs on Hopper GPUs only")
        if spec.window is not None or spec.relative_bias or spec.head_dim not in (64, 128):
            raise ConfigError(f"--attention flashinfer-fa3 does not compute {spec}")
        self._spec = spec
        self._device = device
        self._floats = torch.empty(FLOAT_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._ints = torch.empty(INT_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._staging: dict[int, Tensor] = {}
        self._buckets: dict[int, _Bucket] = {}
        _logger.info("loading FlashInfer's kernels; where none came with it, compiling them takes minutes, once")
        try:
            self._open(LONG_LEAST_TOKENS)
        except Exception as error:
            # It compiles its kernels where none came with it, which needs a CUDA toolkit.
            raise ConfigError(f"--attention flashinfer-fa3 cannot load its kernels: {error}") from error

    @torch.inference_mode()  # its buffers were made in that mode, during a capture
    def plan(self, layout: SequenceLayout, num_tokens: int, slot: int) -> None:
        bucket = self._buckets.get(num_tokens) or self._open(num_tokens)
        bounds = _bounds(layout.cu_seqlens, num_tokens)
        plan_info = self._plan(bucket.wrapper, bounds, num_tokens, self._staging_of(slot))
        if bucket.plan_info != plan_info:
            raise StepFailed(f"FlashInfer planned {plan_info} for a graph that holds {bucket.plan_info}")

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:  # noqa: ARG002  (the plan has them)
        wrapper = (self._buckets.get(num_tokens) or self._open(num_tokens)).wrapper

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:  # noqa: ARG001
            return wrapper.run(q, k, v)

        return BoundAttention(forward)

    def _staging_of(self, slot: int) -> Tensor:
        """Page-locked memory that no plan still in flight is copied from."""
        if slot not in self._staging:
            self._staging[slot] = torch.empty(INT_WORKSPACE_BYTES, dtype=torch.uint8, pin_memory=True)
        return self._staging[slot]

    def _open(self, num_tokens: int) -> _Bucket:
        """A wrapper for the bucket, with a first plan: one sequence that fills it."""
        from flashinfer import BatchPrefillWithRaggedKVCacheWrapper  # pyright: ignore[reportMissingImports]

        bounds = _bounds(np.array((0, num_tokens), np.int32), num_tokens)
        indptr = bounds.to(self._device)
        wrapper = BatchPrefillWithRaggedKVCacheWrapper(
            self._floats,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=indptr,
            kv_indptr_buf=indptr,
            backend="fa3",
        )
        # NOTE: each wrapper would keep 16 MB of its own; steps run one after another, so all may share.
        wrapper._int_workspace_buffer = self._ints  # noqa: SLF001
        wrapper._pin_memory_int_workspace_buffer = self._staging_of(0)  # noqa: SLF001
        wrapper.plan(
            bounds,
            bounds,
            self._spec.num_heads,
            self._spec.num_kv_heads,
            self._spec.head_dim,
            causal=self._spec.causal,
            q_data_type=torch.bfloat16,
        )
        bucket = self._buckets[num_tokens] = _Bucket(wrapper, list(wrapper._plan_info))  # noqa: SLF001
        return bucket

    def _plan(self, wrapper: Any, bounds: Tensor, num_tokens: int, staging: Tensor) -> list[int]:
        """What `wrapper.plan` does, less the checks and copies that cost more than the plan itself."""
        wrapper._qo_indptr_buf.copy_(bounds, non_blocking=True)  # noqa: SLF001
        return list(
            wrapper._cached_module.plan(  # noqa: SLF001
                self._floats,
                self._ints,
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
            )
        )


def _bounds(cu_seqlens: np.ndarray, num_tokens: int) -> Tensor:
    """int32[capacity + 2]: sequences, the padding as one more, then empty ones."""
    bounds = np.full(sequence_capacity(num_tokens) + 2, num_tokens, np.int32)
    bounds[: len(cu_seqlens)] = cu_seqlens
    return torch.from_numpy(bounds)
