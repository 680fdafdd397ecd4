"""Each form of a vector against what its readers make of it."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.encodings import Encoding, VectorType, base64_of, from_base64, to_base64, to_bfloat16
from rosebed.core.errors import InvalidInput
from rosebed.core.quantize import to_int8, to_pplx_int8
from rosebed.core.types import Float32Array

PPLX, BERT = "PPLXQwen3Model", "BertModel"
VECTOR = np.array([0.5, -0.25, 0.0, -0.001, 1.5, 2.0, -3.0, 0.75], np.float32)

floats = st.lists(st.floats(-60_000, 60_000, width=32), min_size=8, max_size=8).map(
    lambda values: np.array(values, np.float32)
)


def encoded(kind: VectorType, vector: Float32Array = VECTOR, architecture: str = BERT, **fields: str) -> bytes:
    return Encoding(type=kind, **fields).encode(vector, architecture).tobytes()  # pyright: ignore[reportArgumentType]


def test_each_type_by_its_formula() -> None:
    assert encoded(VectorType.FLOAT32) == VECTOR.tobytes()
    assert encoded(VectorType.FLOAT16) == VECTOR.astype("<f2").tobytes()
    assert encoded(VectorType.INT8) == to_int8(VECTOR).tobytes()
    assert list(encoded(VectorType.UINT8)) == [value + 128 for value in to_int8(VECTOR).tolist()]
    assert list(encoded(VectorType.UBINARY)) == [0b10101101]
    assert list(np.frombuffer(encoded(VectorType.BINARY), np.int8)) == [0b10101101 - 128]


def test_pplx_embed_has_its_own_int8_and_the_same_bits() -> None:
    assert encoded(VectorType.INT8, architecture=PPLX) == to_pplx_int8(VECTOR).tobytes()
    assert to_pplx_int8(VECTOR).tolist() == [59, -31, 0, 0, 115, 122, -126, 81]
    for kind in (VectorType.BINARY, VectorType.UBINARY):
        assert encoded(kind, architecture=PPLX) == encoded(kind)


def test_the_least_significant_bit_may_come_first() -> None:
    assert list(encoded(VectorType.UBINARY, bit_order="little")) == [0b10110101]


@pytest.mark.parametrize(("kind", "dtype"), [(VectorType.FLOAT32, ">f4"), (VectorType.FLOAT16, ">f2")])
def test_bytes_may_be_turned_around(kind: VectorType, dtype: str) -> None:
    assert encoded(kind, byte_order="big") == VECTOR.astype(dtype).tobytes()


@given(floats)
def test_bfloat16_is_the_nearest(vector: Float32Array) -> None:
    back = (to_bfloat16(vector).astype(np.uint32) << 16).view(np.float32)
    step = np.spacing(np.abs(vector).astype(np.float32)) * 2**16
    assert (np.abs(back - vector) <= step / 2).all()


def test_bfloat16_halves_go_to_the_even_neighbour() -> None:
    halves = np.array([0x3F808000, 0x3F818000, 0xBF808001, 0x3F80FFFF], np.uint32).view(np.float32)
    assert to_bfloat16(halves).tolist() == [0x3F80, 0x3F82, 0xBF81, 0x3F81]


def test_what_float16_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="beyond float16") as caught:
        encoded(VectorType.FLOAT16, np.full(8, 1e6, np.float32))
    assert caught.value.param == "encodings"


@pytest.mark.parametrize("kind", VectorType)
@pytest.mark.parametrize("dim", [8, 12])
def test_forms_that_do_not_fit_are_known_beforehand(kind: VectorType, dim: int) -> None:
    vector = np.ones(dim, np.float32)
    if dim == 12 and kind in (VectorType.BINARY, VectorType.UBINARY):
        with pytest.raises(InvalidInput):
            Encoding(type=kind).check(dim)
    else:
        Encoding(type=kind).check(dim)
        assert encoded(kind, vector)


@given(floats)
def test_rows_are_encoded_as_if_alone(vector: Float32Array) -> None:
    rows = np.stack([vector, -vector, vector / np.float32(3)])
    for kind in VectorType:
        assert encoded(kind, rows) == b"".join(encoded(kind, row) for row in rows)


@given(floats)
def test_base64_goes_there_and_back(vector: Float32Array) -> None:
    np.testing.assert_array_equal(from_base64(to_base64(vector)), vector)
    assert base64.b64decode(base64_of(to_int8(vector))) == to_int8(vector).tobytes()
