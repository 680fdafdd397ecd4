"""FlashAttention-3 (`fa3-fwd` on PyPI), for long sequences on Hopper. Source: Shah et al., 2024.

Its scheduler reads `cu_seqlens` on the device, so one graph serves every layout of its bucket.
"""

import importlib.util

import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention import BoundAttention


class Fa3Attention:
    """`GraphAttention` over `fa3_fwd`."""

    def __init__(self, spec: AttentionSpec, device: torch.device) -> None:
        if importlib.util.find_spec("fa3_fwd_interface") is None:
            raise ConfigError("--attention fa3 needs the package fa3-fwd: pip install fa3-fwd")
        if torch.cuda.get_device_capability(device) != (9, 0):
            raise ConfigError("--attention fa3 runs on Hopper GPUs only")
        if spec.window is not None or spec.relative_bias or spec.head_dim not in (64, 128):
            raise ConfigError(f"--attention fa3 does not compute {spec}")
        self._causal = spec.causal

    def num_words(self, num_tokens: int, num_sequences: int) -> int:  # noqa: ARG002  (the protocol's signature)
        return num_sequences + 2  # the padding tokens are one more sequence

    def plan_into(self, layout: SequenceLayout, num_tokens: int, words: Int32Array) -> None:
        # NOTE: keys are loaded past a sequence's end and only their weights are masked, so rows of padding must be
        # finite: they form a sequence of their own, which writes them in every layer.
        words[: len(layout.cu_seqlens)] = layout.cu_seqlens
        words[len(layout.cu_seqlens) :] = num_tokens

    def bind(self, words: Tensor, num_tokens: int, num_sequences: int) -> Attention:  # noqa: ARG002
        from fa3_fwd_interface import flash_attn_varlen_func  # pyright: ignore[reportMissingImports]

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:  # noqa: ARG001
            out = flash_attn_varlen_func(q, k, v, words, words, num_tokens, num_tokens, causal=self._causal)
            return out[0] if isinstance(out, tuple) else out

        return BoundAttention(forward)
