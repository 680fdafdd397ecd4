"""FlashAttention-3 (`fa3-fwd` on PyPI), for long sequences on Hopper. Source: Shah et al., 2024.

Its scheduler reads `cu_seqlens` on the device, so one graph serves every layout of its bucket.
"""

import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention import BoundAttention, sequence_capacity


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

    def plan(self, layout: SequenceLayout, num_tokens: int, slot: int) -> None:
        """Nothing: its scheduler works on the device."""

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        from fa3_fwd_interface import flash_attn_varlen_func  # pyright: ignore[reportMissingImports]

        # NOTE: keys are loaded past a sequence's end and only their weights are masked, so rows of padding must be
        # finite: they form one more sequence, which writes them in every layer.
        bounds = F.pad(cu_seqlens[: sequence_capacity(num_tokens) + 1], (0, 1), value=num_tokens)

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:  # noqa: ARG001
            out = flash_attn_varlen_func(q, k, v, bounds, bounds, num_tokens, num_tokens, causal=self._causal)
            return out[0] if isinstance(out, tuple) else out

        return BoundAttention(forward)
