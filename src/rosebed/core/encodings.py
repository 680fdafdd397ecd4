"""Forms a vector takes on its way out. Order everywhere: truncate dimensions, normalise, then encode."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rosebed.core.errors import InvalidInput
from rosebed.core.int8_ranges import Int8Ranges
from rosebed.core.quantize import NumberFormat, check_whole_bytes, pack_bits, quantizers_of, to_binary
from rosebed.core.types import Float32Array


class VectorType(StrEnum):
    """What the components of a vector are sent as."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    """The upper half of a float32, rounded to the nearest, halves to the even neighbour."""
    INT8 = "int8"
    """By the model's own quantiser, the operator's ranges, or scaled so that the largest component is ±127."""
    UINT8 = "uint8"
    """The same plus 128."""
    BINARY = "binary"
    """ubinary minus 128, as a signed byte. Packed for every model, unlike `to_pplx_binary`: clients unpack it."""
    UBINARY = "ubinary"
    """One bit a component, eight to a byte."""


FLOATS = frozenset({VectorType.FLOAT32, VectorType.FLOAT16, VectorType.BFLOAT16})
BYTES = frozenset({VectorType.INT8, VectorType.UINT8})
BITS = frozenset({VectorType.BINARY, VectorType.UBINARY})

Order = Literal["big", "little"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What becomes of a float32 vector before it is sent."""

    type: VectorType = VectorType.FLOAT32
    bit_order: Order = "big"
    """Where a byte of ubinary has the first of its components: in its most ("big") or least significant bit."""
    byte_order: Order = "little"
    """Of components of two bytes and more."""

    @property
    def is_plain(self) -> bool:
        """Whether vectors are sent as they are."""
        return self.type is VectorType.FLOAT32 and self.byte_order == "little"

    def check(self, dim: int, param: str = "dimensions") -> None:
        """InvalidInput, about `param`, if vectors of `dim` components have no such form."""
        if self.type in BITS:
            check_whole_bytes(dim, param)

    def encode(self, vectors: Float32Array, architecture: str, ranges: Int8Ranges | None = None) -> npt.NDArray[Any]:
        """float32[..., dim] in this form: [..., dim] or, of bits, [..., dim / 8]; bfloat16 as its bits, in uint16.

        `architecture` is the class name of the model they are from, which may have quantisers of its own;
        `ranges` are for int8 and uint8 of a model that has none. InvalidInput for a component beyond float16.
        """
        encoded = self._forms(architecture, ranges)(vectors)
        return encoded.byteswap() if self.byte_order == "big" else encoded

    def _forms(self, architecture: str, ranges: Int8Ranges | None) -> Callable[[Float32Array], npt.NDArray[Any]]:
        match self.type:
            case VectorType.FLOAT32:
                return lambda vectors: vectors.astype("<f4", copy=False)
            case VectorType.FLOAT16:
                return to_float16
            case VectorType.BFLOAT16:
                return to_bfloat16
            case VectorType.INT8 | VectorType.UINT8:
                of_model = quantizers_of(architecture) if ranges is None else ranges.quantizers
                return of_model[NumberFormat(self.type)]
            case VectorType.BINARY:
                return to_binary
            case VectorType.UBINARY:
                return lambda vectors: pack_bits(vectors, self.bit_order)


def to_float16(vectors: Float32Array) -> npt.NDArray[np.float16]:
    """The nearest float16 of each component. InvalidInput if one is beyond them."""
    with np.errstate(over="ignore"):
        halves = vectors.astype(np.float16)
    if not np.isfinite(halves).all():
        raise InvalidInput(
            "encodings: a component of a vector is beyond float16 (65504); float32 and bfloat16 hold it",
            param="encodings",
        )
    return halves


def to_bfloat16(vectors: Float32Array) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16 of each component, halves to the even one. Components are finite."""
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)).astype(np.uint16)


def base64_of(encoded: npt.NDArray[Any]) -> str:
    """Base64 of the bytes of an encoded vector."""
    return base64.b64encode(encoded.tobytes()).decode("ascii")


def to_base64(vector: Float32Array) -> str:
    """Base64 of the little-endian float32 bytes of `vector` (float32[dim]), as OpenAI's API sends it."""
    return base64_of(vector.astype("<f4", copy=False))


def from_base64(text: str) -> Float32Array:
    """Inverse of `to_base64`: float32[dim]. ValueError if `text` is not base64 of whole floats."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float32, copy=False)
