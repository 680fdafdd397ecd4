"""Vectors in few bits. Order everywhere: truncate dimensions, normalise, then quantise; only the last happens here.

Two families: pplx-embed was trained with quantisers of its own, which take the unnormalised float32 vector; every
other model gets the ones its vendors' clients know. Bits are always those of the float vector: x = -0.001 becomes
int8 0, which is not negative, but bit 0 and sign -1.

All functions take float32[dim] or float32[num_vectors, dim] and work on the last axis.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rosebed.core.errors import InvalidInput
from rosebed.core.types import Float32Array

Int8Array = npt.NDArray[np.int8]
UInt8Array = npt.NDArray[np.uint8]


class NumberFormat(StrEnum):
    """What a vector's components may become."""

    INT8 = "int8"
    """int8[dim]."""
    UINT8 = "uint8"
    """uint8[dim]: the int8 form plus 128."""
    BINARY = "binary"
    """The signs: eight to a byte, as ubinary minus 128, int8[dim / 8]; ±1 each, int8[dim], for pplx-embed."""
    UBINARY = "ubinary"
    """uint8[dim / 8], one bit a component, the most significant first."""


Quantizer = Callable[[Float32Array], npt.NDArray[Any]]


def to_int8(vectors: Float32Array) -> Int8Array:
    """Each vector scaled so that its largest component is ±127: round_half_even(127 x / max|x|). Zeros stay zeros."""
    largest: Float32Array = np.abs(vectors).max(axis=-1, keepdims=True)
    largest[largest == 0] = 1
    return _round_int8(np.float32(127) * vectors / largest)


def to_uint8(vectors: Float32Array) -> UInt8Array:
    """`to_int8` plus 128."""
    return _shift(to_int8(vectors))


def to_ubinary(vectors: Float32Array) -> UInt8Array:
    """One bit per component, x >= 0, most significant bit first. InvalidInput if they do not fill whole bytes."""
    return pack_bits(vectors, "big")


def to_binary(vectors: Float32Array) -> Int8Array:
    """`to_ubinary` minus 128, as a signed byte."""
    return (to_ubinary(vectors) ^ np.uint8(0x80)).view(np.int8)


def to_pplx_int8(vectors: Float32Array) -> Int8Array:
    """round_half_even(127 tanh(x)), in float32 as the checkpoint's own code computes it."""
    return _round_int8(np.tanh(vectors) * np.float32(127))


def to_pplx_uint8(vectors: Float32Array) -> UInt8Array:
    """`to_pplx_int8` plus 128."""
    return _shift(to_pplx_int8(vectors))


def to_pplx_binary(vectors: Float32Array) -> Int8Array:
    """+1 where x >= 0, else -1, one int8 per component."""
    return np.where(vectors >= 0, np.int8(1), np.int8(-1))


def pack_bits(vectors: Float32Array, order: Literal["big", "little"]) -> UInt8Array:
    """One bit per component, x >= 0, eight to a byte. InvalidInput if dim % 8.

    "big" puts the first component into the most significant bit (pplx-embed on the hub, and everybody else);
    "little" into the least significant one (the Perplexity API's base64_binary).
    """
    check_whole_bytes(vectors.shape[-1])
    return np.packbits(vectors >= 0, axis=-1, bitorder=order)


def check_whole_bytes(dim: int, param: str = "dimensions") -> None:
    """InvalidInput, about `param`, if the bits of `dim` components do not fill whole bytes."""
    if dim % 8:
        raise InvalidInput(f"{param}: bit formats need a multiple of 8 components, not {dim}", param=param)


QUANTIZERS: Mapping[NumberFormat, Quantizer] = {
    NumberFormat.INT8: to_int8,
    NumberFormat.UINT8: to_uint8,
    NumberFormat.BINARY: to_binary,
    NumberFormat.UBINARY: to_ubinary,
}
"""For models without quantisers of their own."""

PPLX_QUANTIZERS: Mapping[NumberFormat, Quantizer] = {
    NumberFormat.INT8: to_pplx_int8,
    NumberFormat.UINT8: to_pplx_uint8,
    NumberFormat.BINARY: to_pplx_binary,
    NumberFormat.UBINARY: to_ubinary,
}
"""For pplx-embed."""


def quantizers_of(architecture: str) -> Mapping[NumberFormat, Quantizer]:
    """The quantisers of a model, by its class name as EngineInfo and ModelSpec have it."""
    return PPLX_QUANTIZERS if architecture.startswith("PPLXQwen3") else QUANTIZERS


def has_own_quantizers(architecture: str) -> bool:
    """Whether a model was trained with quantisers of its own."""
    return quantizers_of(architecture) is not QUANTIZERS


def _round_int8(values: Float32Array) -> Int8Array:
    # np.rint rounds halves to the even neighbour, as torch.round does.
    return np.clip(np.rint(values), -128, 127).astype(np.int8)


def _shift(values: Int8Array) -> UInt8Array:
    return values.view(np.uint8) ^ np.uint8(0x80)
