"""Quantisers against their formulas, at the places where they are easily got wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import InvalidInput
from rosebed.core.quantize import (
    PPLX_QUANTIZERS,
    QUANTIZERS,
    NumberFormat,
    pack_bits,
    quantizers_of,
    to_binary,
    to_int8,
    to_pplx_binary,
    to_pplx_int8,
    to_pplx_uint8,
    to_ubinary,
    to_uint8,
)
from rosebed.core.types import Float32Array

vectors = st.integers(1, 12).flatmap(
    lambda dim: st.lists(st.floats(-4, 4, width=32), min_size=8 * dim, max_size=8 * dim).map(
        lambda values: np.array(values, np.float32)
    )
)


def f32(*values: float) -> Float32Array:
    return np.array(values, np.float32)


def test_pplx_int8_is_rounded_tanh() -> None:
    assert to_pplx_int8(f32(0, 1, -1, 0.5, 100, -100)).tolist() == [0, 97, -97, 59, 127, -127]


def test_a_small_negative_is_int8_zero_but_a_zero_bit() -> None:
    x = f32(-0.001, 0.001, 0, -0.0, 1, -1, 2, -2)
    assert to_pplx_int8(x)[:2].tolist() == [0, 0]
    assert to_pplx_binary(x).tolist() == [-1, 1, 1, 1, 1, -1, 1, -1]
    assert pack_bits(x, "big").tolist() == [0b01111010]


def test_pplx_halves_go_to_the_even_neighbour() -> None:
    # 127 tanh(x) is exactly k + 1/2 in float32 for these x, so that a rounding away from zero would show.
    halves = {k: _x_with_half(k) for k in range(60)}
    found = {k: x for k, x in halves.items() if x is not None}
    assert len(found) > 20
    for k, x in found.items():
        expected = k if k % 2 == 0 else k + 1
        assert to_pplx_int8(f32(x, -x)).tolist() == [expected, -expected]


def _x_with_half(k: int) -> float | None:
    """A float32 x with fl(127 fl(tanh(x))) == k + 1/2, if there is one."""
    near = np.float32(np.arctanh((k + 0.5) / 127))
    candidates = near + np.arange(-8, 9, dtype=np.float32) * np.spacing(near)
    exact = np.tanh(candidates) * np.float32(127) == k + 0.5
    return float(candidates[exact][0]) if exact.any() else None


def test_both_bit_orders() -> None:
    x = f32(1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 1)
    assert pack_bits(x, "big").tolist() == [0b10000000, 0b00000011]
    assert pack_bits(x, "little").tolist() == [0b00000001, 0b11000000]


def test_int8_scales_by_the_largest_component_and_rounds_halves_to_even() -> None:
    assert to_int8(f32(-127, 0.5, 1.5, 2.5, -0.5, -1.5)).tolist() == [-127, 0, 2, 2, 0, -2]
    assert to_int8(f32(0, 0)).tolist() == [0, 0]


def test_int8_scales_each_row_by_itself() -> None:
    rows = np.stack([f32(1, -0.5), f32(0.01, 0.01), f32(0, 0)])
    assert to_int8(rows).tolist() == [[127, -64], [127, 127], [0, 0]]


def test_uint8_is_int8_plus_128() -> None:
    assert to_uint8(f32(127, -127, 0, 1)).tolist() == [255, 1, 128, 129]
    assert to_pplx_uint8(f32(100, -100, 0)).tolist() == [255, 1, 128]


def test_binary_is_ubinary_minus_128() -> None:
    x = f32(*(1 if bit else -1 for bit in (1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1)))
    assert to_ubinary(x).tolist() == [129, 127]
    assert to_binary(x).tolist() == [1, -1]


@pytest.mark.parametrize("dim", [1, 7, 9, 1023])
@pytest.mark.parametrize("quantize", [to_binary, to_ubinary, PPLX_QUANTIZERS[NumberFormat.UBINARY]])
def test_bits_must_fill_whole_bytes(quantize: object, dim: int) -> None:
    assert callable(quantize)
    with pytest.raises(
        InvalidInput, match=f"^dimensions: bit formats need a multiple of 8 components, not {dim}"
    ) as caught:
        quantize(np.ones(dim, np.float32))
    assert caught.value.param == "dimensions"


def test_dimensions_are_cut_before_quantising() -> None:
    x = f32(0.1, -0.2, 0.05, 0.2, 0.1, 0.1, 0.1, 0.1, 9)
    assert to_int8(x[:8]).tolist()[:2] == [64, -127]
    assert to_int8(x)[:8].tolist()[:2] == [1, -3]  # what quantising first would give


def test_a_model_is_known_by_its_class_name() -> None:
    assert quantizers_of("PPLXQwen3Model") is PPLX_QUANTIZERS
    assert quantizers_of("Qwen3Model") is QUANTIZERS
    assert quantizers_of("BertModel") is QUANTIZERS


@given(vectors)
def test_formulas_hold_for_any_vector(x: Float32Array) -> None:
    scaled = np.float32(127) * x / np.abs(x).max() if x.any() else x
    assert to_int8(x).tolist() == [round(float(value)) for value in scaled]  # Python rounds halves to even
    assert to_pplx_int8(x).tolist() == [round(float(value)) for value in np.tanh(x) * np.float32(127)]
    bits = [value >= 0 for value in x.tolist()]
    assert np.unpackbits(to_ubinary(x)).astype(bool).tolist() == bits
    assert np.unpackbits(pack_bits(x, "little"), bitorder="little").astype(bool).tolist() == bits
    assert (to_binary(x).astype(int) + 128).tolist() == to_ubinary(x).tolist()


@given(vectors)
def test_rows_are_quantised_as_if_alone(x: Float32Array) -> None:
    rows = np.stack([x, -x, x * 2])
    for quantize in {*QUANTIZERS.values(), *PPLX_QUANTIZERS.values()}:
        assert quantize(rows).tolist() == [quantize(row).tolist() for row in rows]
