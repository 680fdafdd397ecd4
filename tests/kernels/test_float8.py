"""float8 products: the quantising kernel, weights read as float8, and whole operations against float32."""

from dataclasses import dataclass

import pytest
import torch
from kernel_mode import INTERPRETED
from torch import Tensor, nn

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.float8 import Float8Ops, Float8Rows, Float8Weight, check_capability, pack, quantize_weight
from rosebed.rose.cuda.linear_table import ProductShape
from rosebed.rose.layers import FusedLinear
from rosebed.rose.ops import reference
from rosebed.rose.ops.base import Activation, LayerNormWeights
from rosebed.rose.ops.triton.float8 import quantize_rows
from rosebed.rose.ops.triton.small_linear import Epilogue, LinearTiles, small_linear

# NOTE: the interpreter rounds numbers just below a power of two to half of it.
ROUNDING_ERROR = 0.1 if INTERPRETED else 0.03
"""|rounded - exact| / |exact|: three bits are kept behind the leading one."""
PRODUCT_ERROR = 0.12 if INTERPRETED else 0.06
"""The same of two products in a row, with both of their sides rounded."""

SMALL = LinearTiles(block_tokens=16, block_out=32, block_in=64)


@dataclass(frozen=True)
class Always:
    """A table that always says the same."""

    tiles: LinearTiles | None

    def choose(self, shape: ProductShape, num_tokens: int) -> LinearTiles | None:
        return self.tiles


def relative_error(out: Tensor, expected: Tensor) -> float:
    return float((out.float() - expected.float()).norm() / expected.float().norm())


def rows_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel's torch twin."""
    scales = x.float().abs().amax(1, keepdim=True) / 448
    scales = torch.where(scales > 0, scales, 1.0)
    return (x.float() / scales).to(torch.float8_e4m3fn), scales


@pytest.mark.parametrize("width", [64, 96, 1024])
def test_rows(width: int, device: torch.device, dtype: torch.dtype, pdl: bool) -> None:
    x = torch.randn(7, width, device=device).to(dtype)
    x[3] = 0
    values, scales = quantize_rows(x, pdl=pdl)
    expected_values, expected_scales = rows_of(x)
    torch.testing.assert_close(scales, expected_scales)
    assert relative_error(values.float() * scales, x) < ROUNDING_ERROR
    assert values[3].float().count_nonzero() == 0
    if not INTERPRETED:
        assert relative_error(values, expected_values) < 0.01  # a quotient may round off by one unit


@pytest.mark.parametrize(
    ("epilogue", "activation"),
    [(Epilogue.GELU, Activation.GELU), (Epilogue.RELU, Activation.RELU), (Epilogue.SILU_MUL, None)],
)
def test_rows_of_an_activation(
    epilogue: Epilogue, activation: Activation | None, device: torch.device, dtype: torch.dtype, pdl: bool
) -> None:
    x = torch.randn(5, 192, device=device).to(dtype)
    values, scales = quantize_rows(x, epilogue=epilogue, pdl=pdl)
    eye = torch.eye(192, device=device)
    expected = (
        reference.linear_silu_mul(x.float(), eye)
        if activation is None
        else reference.linear_activation(x.float(), eye, None, activation)
    )
    assert values.shape == expected.shape
    assert relative_error(values.float() * scales, expected) < ROUNDING_ERROR


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_spoils_only_itself(
    bad: float, device: torch.device, dtype: torch.dtype, pdl: bool
) -> None:
    x = torch.randn(4, 64, device=device).to(dtype)
    clean = quantize_rows(x, pdl=pdl)
    x[2, 5] = bad
    values, scales = quantize_rows(x, pdl=pdl)
    products = values.float().sum(1, keepdim=True) * scales
    assert torch.isfinite(products[:, 0]).tolist() == [True, True, False, True]
    torch.testing.assert_close(scales[[0, 1, 3]], clean[1][[0, 1, 3]], rtol=0, atol=0)


@pytest.mark.parametrize("tiles", [SMALL, LinearTiles(block_tokens=32, block_out=64, block_in=64, split=2, swap=True)])
def test_small_linear_reads_float8_weights(
    tiles: LinearTiles, device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float
) -> None:
    x = torch.randn(50, 384, device=device).to(dtype)
    weight = quantize_weight(torch.randn(192, 384, device=device) * torch.rand(192, 1, device=device))
    exact = weight.float() * weight.scales.T
    out = small_linear(x, weight, None, scales=weight.scales, tiles=tiles, pdl=pdl)
    assert relative_error(out.sum(0) if tiles.split > 1 else out, x.float() @ exact.T) < tolerance


def test_small_gated_linear_reads_float8_weights(
    device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float
) -> None:
    x = torch.randn(50, 128, device=device).to(dtype)
    weight = quantize_weight(0.2 * torch.randn(192, 128, device=device) * (0.5 + torch.rand(192, 1, device=device)))
    expected = reference.linear_silu_mul(x.float(), weight.float() * weight.scales.T)
    out = small_linear(x, weight, None, scales=weight.scales, tiles=SMALL, epilogue=Epilogue.SILU_MUL, pdl=pdl)
    assert relative_error(out, expected) < tolerance


@pytest.fixture(params=["scaled"] if INTERPRETED else ["scaled", "small"])
def ops(request: pytest.FixtureRequest, pdl: bool) -> Float8Ops:
    return Float8Ops(Always(SMALL if request.param == "small" else None), pdl)


@pytest.fixture
def needs_float8(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("the chip multiplies no float8")


def bfloat16(*shape: int, device: torch.device, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, device=device) * scale).to(torch.bfloat16)


@pytest.mark.usefixtures("needs_float8")
class TestOperations:
    """T = 48 tokens; each against the reference in float32 with the weight as it was before rounding."""

    def test_linear(self, ops: Float8Ops, device: torch.device) -> None:
        x, bias = bfloat16(48, 128, device=device), bfloat16(192, device=device)
        weight = bfloat16(192, 128, device=device, scale=0.2)
        for given in (None, bias):
            expected = reference.linear(x.float(), weight.float(), None if given is None else given.float())
            out = ops.linear(x, quantize_weight(weight), given)
            assert out.dtype == torch.bfloat16
            assert type(out) is Tensor
            assert relative_error(out, expected) < PRODUCT_ERROR

    def test_activation_then_norm(self, ops: Float8Ops, device: torch.device) -> None:
        x, residual = bfloat16(48, 128, device=device), bfloat16(48, 128, device=device)
        up, down = bfloat16(192, 128, device=device, scale=0.1), bfloat16(128, 192, device=device, scale=0.1)
        bias, out_bias, weight = (bfloat16(n, device=device) for n in (192, 128, 128))
        norm = LayerNormWeights(weight, out_bias, 1e-5)
        wide = reference.linear_activation(x.float(), up.float(), bias.float(), Activation.GELU)
        expected = reference.linear_add_layer_norm(
            wide,
            down.float(),
            out_bias.float(),
            residual.float(),
            LayerNormWeights(weight.float(), out_bias.float(), 1e-5),
        )
        inner = ops.linear_activation(x, quantize_weight(up), bias, Activation.GELU)
        out = ops.linear_add_layer_norm(inner, quantize_weight(down), out_bias, residual, norm)
        assert relative_error(out, expected) < PRODUCT_ERROR

    def test_gated_then_norm(self, ops: Float8Ops, device: torch.device) -> None:
        x, residual = bfloat16(48, 128, device=device), bfloat16(48, 128, device=device)
        gate_up, down = bfloat16(384, 128, device=device, scale=0.1), bfloat16(128, 192, device=device, scale=0.1)
        weight = bfloat16(128, device=device)
        wide = reference.linear_silu_mul(x.float(), gate_up.float())
        expected = reference.linear_add_rms_norm(wide, down.float(), residual.float(), weight.float(), 1e-6)
        inner = ops.linear_silu_mul(x, quantize_weight(gate_up))
        out = ops.linear_add_rms_norm(inner, quantize_weight(down), residual, weight, 1e-6)
        for got, wanted in zip(out, expected, strict=True):
            assert relative_error(got, wanted) < PRODUCT_ERROR

    def test_float8_tokens_go_to_the_scaled_product_whatever_the_table_says(self, device: torch.device) -> None:
        x, residual = bfloat16(48, 128, device=device), bfloat16(48, 128, device=device)
        scaled, small = Float8Ops(Always(None), pdl=False), Float8Ops(Always(SMALL), pdl=False)
        weight = quantize_weight(bfloat16(128, 128, device=device, scale=0.1))
        inner = scaled.linear_activation(x, weight, None, Activation.RELU)
        assert isinstance(inner, Float8Rows)
        norm = bfloat16(128, device=device)
        one = scaled.linear_add_rms_norm(inner, weight, residual.clone(), norm, 1e-6)
        other = small.linear_add_rms_norm(inner, weight, residual.clone(), norm, 1e-6)
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_pack_leaves_what_the_scaled_product_cannot_take() -> None:
    fits = nn.Linear(32, 48)
    parts = FusedLinear(32, (24, 24), bias=False)
    others = [nn.Linear(32, 40), nn.Linear(40, 32), parts, nn.Embedding(16, 16)]
    before = fits.weight.detach().clone()
    pack(nn.ModuleList([fits, *others]))
    weight = fits.weight
    assert isinstance(weight, Float8Weight)
    assert (weight.dtype, weight.scales.shape) == (torch.float8_e4m3fn, (1, 48))
    assert relative_error(weight.float() * weight.scales.T, before) < 0.03
    assert {type(module.weight) for module in others} == {nn.Parameter}


def test_chips_without_float8_are_refused() -> None:
    check_capability((8, 9), "cuda:0")
    check_capability((9, 0), "cuda:0")
    with pytest.raises(ConfigError, match=r"--dtype float8: cuda:0 has compute capability 8\.6, and .* need 8\.9"):
        check_capability((8, 6), "cuda:0")
