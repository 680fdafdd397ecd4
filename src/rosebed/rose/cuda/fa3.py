"""FlashAttention-3 (`fa3-fwd` on PyPI), for long sequences on Hopper. Source: Shah et al., 2024."""

import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.cuda.varlen import VarlenAttention, check_chip, check_package, check_spec, import_backend

NAME = "fa3"
MODULE = "fa3_fwd_interface"
REQUIREMENT = "fa3-fwd>=0.0.3"


class Fa3Attention(VarlenAttention):
    """`GraphAttention` over `fa3_fwd`, whose scheduler works on the device. Its wheels have no sliding window."""

    def __init__(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:
        check_package(NAME, MODULE, REQUIREMENT)
        check_chip(NAME, device, hopper_only=True)
        check_spec(NAME, spec, dtype)
        super().__init__(spec)
        self._function = import_backend(NAME, MODULE, REQUIREMENT).flash_attn_varlen_func
        self._try(spec, device, dtype)

    def _try(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:
        """ConfigError if this build has no kernel for the model: builds leave types and head sizes out."""
        q, k = (
            torch.zeros(1, heads, spec.head_dim, device=device, dtype=dtype)
            for heads in (spec.num_heads, spec.num_kv_heads)
        )
        try:
            self._attend(q, k, k, torch.tensor((0, 1), dtype=torch.int32, device=device), 1)
        except RuntimeError as error:
            raise ConfigError(f"--attention {NAME}: this build of fa3-fwd does not run this model: {error}") from error

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, max_length: int) -> Tensor:
        out = self._function(q, k, v, bounds, bounds, max_length, max_length, causal=self._causal)
        return out[0] if isinstance(out, tuple) else out
