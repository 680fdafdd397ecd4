"""What the attention libraries have in common: whom they run for, and how they see a batch.

Those that load keys by whole tiles read on past a sequence's end and mask only the weights, and 0 · NaN is NaN. So rows
of padding must be finite: they form one more sequence, which writes them in every layer.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.cuda.attention import BoundAttention
from rosebed.rose.cuda.keys import GraphKey

HEAD_DIMS = (64, 128)
HOPPER = (9, 0)
AMPERE = (8, 0)


def check_package(name: str, module: str, requirement: str) -> None:
    """ConfigError, naming what to install, where `module` is missing. Imports nothing."""
    if find_spec(module) is None:
        raise ConfigError(f"--attention {name} needs a package that is not installed: pip install '{requirement}'")


def import_backend(name: str, module: str, requirement: str) -> Any:
    """The module. ConfigError if it, or something it needs, is missing or does not load."""
    try:
        return import_module(module)
    except Exception as error:  # libraries of kernels fail to load in ways of their own
        raise ConfigError(
            f"--attention {name} needs {module}, which cannot be imported ({error}): pip install '{requirement}'"
        ) from error


def check_chip(name: str, device: torch.device, *, hopper_only: bool = False) -> None:
    """ConfigError where the kernels were not made for this GPU."""
    capability = torch.cuda.get_device_capability(device)
    if capability != HOPPER if hopper_only else capability < AMPERE:
        wanted = "Hopper GPUs (compute capability 9.0) only" if hopper_only else "GPUs from compute capability 8.0 on"
        major, minor = capability
        raise ConfigError(f"--attention {name} runs on {wanted}, and {device} has {major}.{minor}")


def check_spec(name: str, spec: AttentionSpec, dtype: torch.dtype, *, window: bool = False) -> None:
    """ConfigError where the kernels cannot compute this model; `window` where they know sliding windows."""
    if dtype not in (torch.bfloat16, torch.float16):
        given = str(dtype).removeprefix("torch.")
        raise ConfigError(f"--attention {name} computes bfloat16 and float16, not {given}: take triton, or auto")
    if spec.head_dim not in HEAD_DIMS:
        raise ConfigError(f"--attention {name} takes heads of 64 or 128, and this model's have {spec.head_dim}")
    if spec.relative_bias:
        raise ConfigError(f"--attention {name} knows no bias by distance, which this model has: take triton, or auto")
    if spec.window is not None and not window:
        raise ConfigError(f"--attention {name} knows no sliding window, which this model has: take triton, or auto")


class VarlenAttention:
    """A `GraphAttention` whose kernels read the bounds of sequences on the device, so that there is nothing to plan.

    Subclasses say how to call theirs.
    """

    def __init__(self, spec: AttentionSpec) -> None:
        self._causal = spec.causal
        self._window = spec.window

    def plan(self, layout: SequenceLayout, key: GraphKey, slot: int) -> None:
        """Nothing: one graph serves every layout of its bucket."""

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        bounds = F.pad(cu_seqlens, (0, 1), value=num_tokens)

        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:  # noqa: ARG001
            return self._attend(q, k, v, bounds, num_tokens)

        return BoundAttention(forward)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, max_length: int) -> Tensor:
        """Attention of each sequence [bounds[i], bounds[i + 1]) over itself. `max_length` is the bucket's: a graph
        holds it, and longer sequences of a later batch would be cut without a word."""
        raise NotImplementedError
