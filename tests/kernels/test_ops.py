"""Each Triton operation against its torch reference, computed in float32 from the same rounded inputs."""

import pytest
import torch
from torch import Tensor

from rosebed.core.model_spec import Pooling
from rosebed.rose.ops import reference
from rosebed.rose.ops.base import Activation, EmbeddingTables, HeadShape, LayerNormWeights
from rosebed.rose.ops.triton import activations, embed, norms, pool, rope
from rosebed.rose.ops.triton.small_linear import Epilogue, LinearTiles, small_linear


def relative_error(out: Tensor, expected: Tensor) -> float:
    return float((out.float() - expected.float()).norm() / expected.float().norm())


def randn(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape) * scale).to(device=device, dtype=dtype)


TILES = [
    LinearTiles(block_tokens=16, block_out=32, block_in=64),
    LinearTiles(block_tokens=32, block_out=64, block_in=64, split=2, swap=True),
    LinearTiles(block_tokens=64, block_out=64, block_in=128, split=3),
]


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("num_tokens", [1, 50])
def test_small_linear(
    tiles: LinearTiles, num_tokens: int, device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float
) -> None:
    x = randn(num_tokens, 384, device=device, dtype=dtype)
    weight = randn(192, 384, device=device, dtype=dtype, scale=0.05)
    bias = randn(192, device=device, dtype=dtype)
    out = small_linear(x, weight, bias, tiles=tiles, pdl=pdl)
    if tiles.split > 1:
        assert out.shape == (tiles.split, num_tokens, 192)
        expected = x.float() @ weight.float().T
        assert relative_error(out.sum(0), expected) < tolerance
    else:
        assert relative_error(out, reference.linear(x.float(), weight.float(), bias.float())) < tolerance


@pytest.mark.parametrize(
    ("epilogue", "activation"),
    [
        (Epilogue.GELU, Activation.GELU),
        (Epilogue.GELU_TANH, Activation.GELU_TANH),
        (Epilogue.RELU, Activation.RELU),
        (Epilogue.SILU, Activation.SILU),
    ],
)
def test_activations(
    epilogue: Epilogue,
    activation: Activation,
    device: torch.device,
    dtype: torch.dtype,
    pdl: bool,
    tolerance: float,
) -> None:
    x = randn(50, 128, device=device, dtype=dtype)
    weight = randn(64, 128, device=device, dtype=dtype, scale=0.2)
    bias = randn(64, device=device, dtype=dtype)
    expected = reference.linear_activation(x.float(), weight.float(), bias.float(), activation)
    fused = small_linear(x, weight, bias, tiles=TILES[0], epilogue=epilogue, pdl=pdl)
    assert relative_error(fused, expected) < tolerance
    separate = activations.bias_activation_(x @ weight.T, bias, epilogue, pdl=pdl)
    assert relative_error(separate, expected) < 3 * tolerance  # one more rounding, of the product


def test_silu_mul(device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float) -> None:
    x = randn(50, 128, device=device, dtype=dtype)
    gate_up = randn(192, 128, device=device, dtype=dtype, scale=0.2)
    expected = reference.linear_silu_mul(x.float(), gate_up.float())
    fused = small_linear(x, gate_up, None, tiles=TILES[0], epilogue=Epilogue.SILU_MUL, pdl=pdl)
    assert relative_error(fused, expected) < tolerance
    assert relative_error(activations.silu_and_mul(x @ gate_up.T, pdl=pdl), expected) < 3 * tolerance


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("width", [96, 1024])
def test_add_layer_norm(
    parts: int, width: int, device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float
) -> None:
    x = randn(parts, 7, width, device=device, dtype=torch.float32 if parts > 1 else dtype)
    residual, weight, bias, x_bias = (
        randn(*shape, device=device, dtype=dtype) for shape in ((7, width), (width,), (width,), (width,))
    )
    given = x if parts > 1 else x[0]
    out = norms.add_layer_norm(given, residual, LayerNormWeights(weight, bias, 1e-5), x_bias=x_bias, pdl=pdl)
    expected = reference.add_layer_norm(
        x.float().sum(0), residual.float(), weight.float(), bias.float(), 1e-5, x_bias.float()
    )
    assert relative_error(out, expected) < tolerance


def test_layer_norm_of_a_sum_already_made(
    device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float
) -> None:
    x, weight, bias = (randn(*shape, device=device, dtype=dtype) for shape in ((7, 96), (96,), (96,)))
    out = norms.add_layer_norm(x, None, LayerNormWeights(weight, bias, 1e-5), pdl=pdl)
    expected = torch.nn.functional.layer_norm(x.float(), (96,), weight.float(), bias.float(), 1e-5)
    assert relative_error(out, expected) < tolerance


@pytest.mark.parametrize("parts", [1, 3])
def test_add_rms_norm(parts: int, device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float) -> None:
    x = randn(parts, 7, 96, device=device, dtype=torch.float32 if parts > 1 else dtype)
    residual, weight = (randn(*shape, device=device, dtype=dtype) for shape in ((7, 96), (96,)))
    out, new_residual = norms.add_rms_norm(x if parts > 1 else x[0], residual, weight, 1e-6, pdl=pdl)
    expected, expected_residual = reference.add_rms_norm(x.float().sum(0), residual.float(), weight.float(), 1e-6)
    assert relative_error(out, expected) < tolerance
    assert relative_error(new_residual, expected_residual) < tolerance


def test_rms_norm(device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float) -> None:
    x, weight = randn(7, 96, device=device, dtype=dtype), randn(96, device=device, dtype=dtype)
    expected = reference.rms_norm(x.float(), weight.float(), 1e-6)
    assert relative_error(norms.rms_norm(x, weight, 1e-6, pdl=pdl), expected) < tolerance


@pytest.mark.parametrize("types", ["none", "zero", "given"])
def test_embed_layer_norm(types: str, device: torch.device, dtype: torch.dtype, tolerance: float) -> None:
    tables = EmbeddingTables(
        word=randn(50, 96, device=device, dtype=dtype),
        position=randn(20, 96, device=device, dtype=dtype)[2:],
        token_type=None if types == "none" else randn(2, 96, device=device, dtype=dtype),
    )
    ids = torch.randint(0, 50, (9,), dtype=torch.int32, device=device)
    positions = torch.randint(0, 18, (9,), dtype=torch.int32, device=device)
    token_types = torch.randint(0, 2, (9,), dtype=torch.int32, device=device) if types == "given" else None
    weight, bias = randn(96, device=device, dtype=dtype), randn(96, device=device, dtype=dtype)
    out = embed.embed_layer_norm(ids, positions, token_types, tables, weight, bias, 1e-5)
    wide = EmbeddingTables(*(None if table is None else table.float() for table in tables))  # pyright: ignore[reportArgumentType]
    expected = reference.embed_layer_norm(ids, positions, token_types, wide, weight.float(), bias.float(), 1e-5)
    assert relative_error(out, expected) < tolerance


def test_qk_norm_rope(device: torch.device, dtype: torch.dtype, pdl: bool, tolerance: float) -> None:
    heads = HeadShape(num_heads=6, num_kv_heads=3, head_dim=32)
    qkv = randn(5, 12 * 32, device=device, dtype=dtype)
    q_weight, k_weight = randn(32, device=device, dtype=dtype), randn(32, device=device, dtype=dtype)
    positions = torch.tensor([0, 1, 17, 3, 9], dtype=torch.int32, device=device)
    cos_sin = randn(20, 32, device=device, dtype=torch.float32)
    expected = reference.qk_norm_rope(qkv.float(), q_weight.float(), k_weight.float(), positions, cos_sin, heads, 1e-6)
    rope.qk_norm_rope(qkv, q_weight, k_weight, positions, cos_sin, heads, 1e-6, pdl=pdl)
    out = qkv.unflatten(-1, (-1, 32)).split((6, 3, 3), dim=1)
    for got, wanted in zip(out, expected, strict=True):
        assert relative_error(got, wanted) < tolerance


@pytest.mark.parametrize("mode", list(Pooling))
def test_pool(mode: Pooling, device: torch.device, dtype: torch.dtype, tolerance: float) -> None:
    hidden = randn(70, 160, device=device, dtype=dtype)
    spans = torch.tensor([[0, 40], [40, 41], [41, 70], [3, 5]], dtype=torch.int32, device=device)
    out = pool.pool(hidden, spans, mode)
    assert out.dtype == torch.float32
    assert relative_error(out, reference.pool(hidden.float(), spans, mode)) < tolerance


@pytest.mark.parametrize("mode", list(Pooling))
def test_pool_passes_over_the_empty_spans_of_a_bucket(mode: Pooling, device: torch.device, dtype: torch.dtype) -> None:
    hidden = randn(6, 160, device=device, dtype=dtype)
    used = torch.tensor([[0, 2], [2, 6]], dtype=torch.int32, device=device)
    spans = torch.cat((used, torch.zeros(700, 2, dtype=torch.int32, device=device)))
    torch.testing.assert_close(pool.pool(hidden, spans, mode)[:2], pool.pool(hidden, used, mode))


def test_finalize_dense(device: torch.device) -> None:
    vectors = randn(5, 160, device=device, dtype=torch.float32)
    vectors[3, 7] = float("nan")
    vectors[4, 150] = float("inf")
    dimensions = torch.tensor([160, 64, 1, 160, 100], dtype=torch.int32, device=device)
    normalize = torch.tensor([True, True, False, True, False], device=device)
    out, finite = pool.finalize_dense(vectors, dimensions, normalize)
    expected, expected_finite = reference.finalize_dense(vectors, dimensions, normalize)
    # The infinity of the last row lies beyond its kept dimensions, so it does not count.
    assert finite.tolist() == expected_finite.tolist() == [True, True, True, False, True]
    torch.testing.assert_close(out[[0, 1, 2, 4]], expected[[0, 1, 2, 4]], rtol=1e-6, atol=1e-7)
