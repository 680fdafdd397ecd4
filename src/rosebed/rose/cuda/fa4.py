"""FlashAttention-4 (`flash-attn-4` on PyPI): written in CuTe DSL, compiled in seconds at first use of a shape."""

import torch
from torch import Tensor

from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.cuda.varlen import VarlenAttention, check_chip, check_package, check_spec, import_backend

NAME = "fa4"
MODULE = "flash_attn.cute"
REQUIREMENT = "flash-attn-4>=4.0.0b36"


class Fa4Attention(VarlenAttention):
    """`GraphAttention` over `flash_attn.cute`."""

    def __init__(self, spec: AttentionSpec, device: torch.device, dtype: torch.dtype) -> None:
        check_package(NAME, "flash_attn", REQUIREMENT)  # FlashAttention-2 has that package too, without `cute`
        check_chip(NAME, device)
        check_spec(NAME, spec, dtype, window=True)
        super().__init__(spec)
        self._function = import_backend(NAME, MODULE, REQUIREMENT).flash_attn_varlen_func

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, max_length: int) -> Tensor:
        out = self._function(
            q,
            k,
            v,
            cu_seqlens_q=bounds,
            cu_seqlens_k=bounds,
            max_seqlen_q=max_length,
            max_seqlen_k=max_length,
            causal=self._causal,
            window_size=(self._window, 0 if self._causal and self._window is not None else self._window),
        )
        return out[0] if isinstance(out, tuple) else out
