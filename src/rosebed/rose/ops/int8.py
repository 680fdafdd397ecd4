"""`Ops` on the CPU whose products take 8-bit weights and tokens: a scale per output row, a scale and a least per token.

Those are of single tokens, made anew for each product, so that a text's vector does not depend on its neighbours in a
batch. Everything but products is float32. Costs accuracy, which `rosebed verify` shows.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rosebed.rose.ops.base import Activation, LayerNormWeights
from rosebed.rose.ops.cpu import embed_layer_norm, finalize_dense, pool, qk_norm_rope, rms_norm

__all__ = [
    "embed_layer_norm",
    "finalize_dense",
    "is_available",
    "linear",
    "linear_activation",
    "linear_add_layer_norm",
    "linear_add_rms_norm",
    "linear_silu_mul",
    "pack",
    "pool",
    "qk_norm_rope",
    "rms_norm",
]

LARGEST = 127
"""Of a weight. Tokens go from 0 to 255: oneDNN is fast at unsigned times signed alone."""
MIN_SCALE = 1e-30
"""Of a row of equal values."""

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.GELU: F.gelu,
    Activation.GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
    Activation.RELU: torch.relu_,
    Activation.SILU: lambda x: F.silu(x, inplace=True),
}


class Int8Weight(nn.Parameter):
    """int8[out, in] as oneDNN lays it out; times `scales` it is the weight."""

    scales: Tensor
    """float32[out]"""
    row_sums: Tensor
    """float32[out]: of the rounded weight, what every token's least is multiplied by."""
    zero_points: Tensor
    """int64[out], all 0."""


# NOTE: not documented, but what torch.compile emits for quantized models since torch 2.1.
_PREPACK = getattr(getattr(torch.ops.onednn, "qlinear_prepack", None), "default", None)
_PRODUCT = getattr(getattr(torch.ops.onednn, "qlinear_pointwise", None), "default", None)


def is_available() -> bool:
    """Whether this build of torch has oneDNN's quantized products, on this processor."""
    return torch.backends.mkldnn.is_available() and None not in (_PREPACK, _PRODUCT)


def pack(model: nn.Module) -> None:
    """Round the weight of each nn.Linear by rows. Nothing but this file can use it then."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = quantize_weight(module.weight.detach())


def quantize_weight(weight: Tensor) -> Int8Weight:
    """Round each row by its largest value."""
    assert _PREPACK is not None
    scales = weight.abs().amax(1).clamp_min(MIN_SCALE) / LARGEST
    rounded = (weight / scales.unsqueeze(1)).round()
    packed = Int8Weight(_PREPACK(rounded.to(torch.int8), None), requires_grad=False)
    packed.scales = scales
    packed.row_sums = rounded.sum(1) * scales
    packed.zero_points = torch.zeros(len(scales), dtype=torch.int64)
    return packed


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert isinstance(weight, Int8Weight)
    assert _PRODUCT is not None
    least, most = (
        x.amin(1, keepdim=True),
        x.amax(1, keepdim=True),
    )  # float32[T, 1] each; aminmax takes ten times as long
    scales = (most - least).clamp_min_(MIN_SCALE).div_(255)
    rounded = (x - least).div_(scales).round_().to(torch.uint8)
    product = _PRODUCT(
        rounded, 1.0, 0, weight, weight.scales, weight.zero_points, None, 1.0, 0, torch.float32, "none", [], ""
    )
    product = product.mul_(scales).addcmul_(least, weight.row_sums)
    return product if bias is None else product.add_(bias)


def linear_add_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: LayerNormWeights) -> Tensor:
    total = linear(x, weight, bias).add_(residual)
    return torch.layer_norm(total, norm.weight.shape, norm.weight, norm.bias, norm.eps)


def linear_add_rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor, norm_weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    total = linear(x, weight).add_(residual)
    return rms_norm(total, norm_weight, eps), total


def linear_activation(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    return _ACTIVATIONS[activation](linear(x, weight, bias))


def linear_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    gate, up = linear(x, gate_up).chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
