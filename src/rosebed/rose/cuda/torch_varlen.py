"""FlashAttention-2 as torch itself brings it: no further package. Source: Dao, 2023.

Called by its operator, which every torch from 2.9 on has; `torch.nn.attention.varlen` wraps the same, from 2.10 on, in
a custom operator that costs the host more.
"""

import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.cuda.varlen import VarlenAttention, check_chip, check_spec

NAME = "torch-varlen"


class TorchVarlenAttention(VarlenAttention):
    """`GraphAttention` over `aten::_flash_attention_forward`."""

    def __init__(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:
        if not torch.backends.cuda.is_flash_attention_available():
            raise ConfigError(f"--attention {NAME}: this build of torch, {torch.__version__}, has no FlashAttention")
        check_chip(NAME, device)
        check_spec(NAME, spec, dtype, window=True)
        super().__init__(spec)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, max_length: int) -> Tensor:
        window = self._window
        out = torch.ops.aten._flash_attention_forward(  # noqa: SLF001
            q,
            k,
            v,
            bounds,
            bounds,
            max_length,
            max_length,
            0.0,  # no dropout
            self._causal,
            False,  # no debug mask
            scale=q.shape[-1] ** -0.5,
            window_size_left=window,
            window_size_right=0 if self._causal and window is not None else window,
        )
        return out[0]
