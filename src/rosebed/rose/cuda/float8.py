"""`Ops` whose products take float8 weights: one scale per output row, and per token where many tokens are multiplied.

Few tokens are bound by the bytes of the weights: `small_linear` reads those as float8 and multiplies in bfloat16. More
are bound by arithmetic: tokens are rounded to float8 too, and torch's scaled product does the rest. Everything but
products is `CudaOps`. Sources: Micikevicius et al., "FP8 formats for deep learning", 2022.
"""

import torch
from torch import Tensor, nn

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.linear_table import ProductKind
from rosebed.rose.cuda.ops import EPILOGUES, CudaOps
from rosebed.rose.layers import FusedLinear
from rosebed.rose.ops.base import Activation, LayerNormWeights
from rosebed.rose.ops.triton import norms
from rosebed.rose.ops.triton.float8 import quantize_rows
from rosebed.rose.ops.triton.small_linear import Epilogue, LinearTiles, small_linear

LEAST_CAPABILITY = (8, 9)
ALIGNMENT = 16
"""Both sides of a weight must be multiples of it for the scaled product."""


class Float8Weight(nn.Parameter):
    """float8_e4m3fn[out, in]; times `scales` it is the weight."""

    scales: Tensor
    """float32[1, out]"""


class Float8Rows(nn.Parameter):
    """float8_e4m3fn[T, in]: tokens that one product has left as the next wants them.

    A parameter only in that what is computed from it is a plain tensor.
    """

    scales: Tensor
    """float32[T, 1]"""


def check_capability(capability: tuple[int, int], device: str) -> None:
    """ConfigError where the chip multiplies no float8."""
    if capability < LEAST_CAPABILITY:
        has, needed = (".".join(map(str, pair)) for pair in (capability, LEAST_CAPABILITY))
        raise ConfigError(
            f"--dtype float8: {device} has compute capability {has}, and its products need {needed}; take bfloat16"
        )


def quantize_weight(weight: Tensor) -> Float8Weight:
    """Round each row to float8 by its largest value."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    wide = weight.float()
    scales = wide.abs().amax(1, keepdim=True) / largest
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))
    packed = Float8Weight((wide / scales).clamp(-largest, largest).to(torch.float8_e4m3fn), requires_grad=False)
    packed.scales = scales.T.contiguous()
    return packed


def pack(model: nn.Module) -> None:
    """Round the weight of each nn.Linear that the scaled product can take. Only `Float8Ops` can use them then."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            parts = module.part_sizes if isinstance(module, FusedLinear) else (module.out_features,)
            if not any(size % ALIGNMENT for size in (module.in_features, *parts)):
                module.weight = quantize_weight(module.weight.detach())


class Float8Ops(CudaOps):
    """`CudaOps` for models that are packed; its table is of products with float8 weights. See `ops.base.Ops`.

    A product that feeds another leaves `Float8Rows` where it took tokens as float8 itself.
    """

    __slots__ = ()

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if not isinstance(weight, Float8Weight):
            return super().linear(x, weight, bias)
        tiles = self._tiles(ProductKind.PLAIN, x, weight)
        if tiles is None:
            return self._scaled(x, weight, bias)
        return self._small(x, weight, bias, tiles)

    def linear_add_layer_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, norm: LayerNormWeights
    ) -> Tensor:
        if not isinstance(weight, Float8Weight):
            return super().linear_add_layer_norm(x, weight, bias, residual, norm)
        return norms.add_layer_norm(self._unreduced(x, weight), residual, norm, x_bias=bias, pdl=self.pdl)

    def linear_add_rms_norm(
        self, x: Tensor, weight: Tensor, residual: Tensor, norm_weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(weight, Float8Weight):
            return super().linear_add_rms_norm(x, weight, residual, norm_weight, eps)
        return norms.add_rms_norm(self._unreduced(x, weight), residual, norm_weight, eps, pdl=self.pdl)

    def linear_activation(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
        if not isinstance(weight, Float8Weight):
            return super().linear_activation(x, weight, bias, activation)
        tiles = self._tiles(ProductKind.ACTIVATION, x, weight)
        if tiles is None:
            return self._rows(self._scaled(x, weight, bias), EPILOGUES[activation])
        return self._small(x, weight, bias, tiles, EPILOGUES[activation])

    def linear_silu_mul(self, x: Tensor, gate_up: Tensor) -> Tensor:
        if not isinstance(gate_up, Float8Weight):
            return super().linear_silu_mul(x, gate_up)
        tiles = self._tiles(ProductKind.GATED, x, gate_up)
        if tiles is None:
            return self._rows(self._scaled(x, gate_up, None), Epilogue.SILU_MUL)
        return self._small(x, gate_up, None, tiles, Epilogue.SILU_MUL)

    def _unreduced(self, x: Tensor, weight: Float8Weight) -> Tensor:
        """x W^T, [T, out] or float32 partial sums."""
        tiles = None if isinstance(x, Float8Rows) else self._tiles(ProductKind.UNREDUCED, x, weight)
        return self._scaled(x, weight, None) if tiles is None else self._small(x, weight, None, tiles)

    def _small(
        self,
        x: Tensor,
        weight: Float8Weight,
        bias: Tensor | None,
        tiles: LinearTiles,
        epilogue: Epilogue = Epilogue.NONE,
    ) -> Tensor:
        return small_linear(x, weight, bias, scales=weight.scales, tiles=tiles, epilogue=epilogue, pdl=self.pdl)

    def _scaled(self, x: Tensor, weight: Float8Weight, bias: Tensor | None) -> Tensor:
        """bfloat16[T, out] from tokens as float8, rounded here unless they are already."""
        rows = x if isinstance(x, Float8Rows) else self._rows(x, Epilogue.NONE)
        return torch.ops.aten._scaled_mm(  # noqa: SLF001 - the only door to this product
            rows,
            weight.t(),
            scale_a=rows.scales,
            scale_b=weight.scales,
            bias=bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    def _rows(self, x: Tensor, epilogue: Epilogue) -> Float8Rows:
        values, scales = quantize_rows(x, epilogue=epilogue, pdl=self.pdl)
        rows = values.as_subclass(Float8Rows)
        rows.scales = scales
        return rows
