"""Fixed ranges for int8 and uint8, measured on an operator's own vectors, so that every vector has the same scale.

They are what sentence-transformers takes as `quantize_embeddings(ranges=…)`, and so is what is made of a vector.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rosebed.core.errors import ConfigError
from rosebed.core.quantize import Int8Array, NumberFormat, Quantizer, UInt8Array
from rosebed.core.types import Float32Array

_FORM = "two lists of numbers, the least and the greatest of each component"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Int8Ranges:
    """Where each component's 256 steps begin, and how large they are."""

    starts: Float32Array
    """float32[dim]: the least of each component."""
    steps: Float32Array
    """float32[dim]: a 255th of its range; 1 where that is 0."""

    @classmethod
    def read(cls, path: str, dim: int) -> "Int8Ranges":
        """From the JSON file `path`, [[min, …], [max, …]] of `dim` components. ConfigError names the file."""
        import msgspec  # clients import this module too, and do not have it

        where = f"--int8-ranges {path}"
        try:
            ranges = msgspec.json.decode(Path(path).expanduser().read_bytes(), type=tuple[list[float], list[float]])
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror or error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where} should hold {_FORM}: {error}") from error
        for index, numbers in enumerate(ranges):
            if len(numbers) != dim:
                raise ConfigError(f"{where}: vectors have {dim} components, list [{index}] has {len(numbers)}")
        with np.errstate(over="ignore", invalid="ignore"):
            least, greatest = np.array(ranges, np.float32)
            steps: Float32Array = (greatest - least) / np.float32(255)
        for index in np.flatnonzero(~((steps >= 0) & np.isfinite(steps)))[:1]:
            least_one, greatest_one = ranges[0][index], ranges[1][index]
            raise ConfigError(f"{where}: [0][{index}] to [1][{index}] is no range: {least_one} to {greatest_one}")
        return cls(starts=least, steps=np.where(steps == 0, np.float32(1), steps))

    @property
    def dim(self) -> int:
        """Of the vectors that have these ranges."""
        return len(self.starts)

    @property
    def quantizers(self) -> Mapping[NumberFormat, Quantizer]:
        """For int8 and uint8."""
        return {NumberFormat.INT8: self.to_int8, NumberFormat.UINT8: self.to_uint8}

    def to_uint8(self, vectors: Float32Array) -> UInt8Array:
        """float32[..., dim] → uint8[..., dim]: the step that each component is on, the first or last if beyond."""
        return np.clip(np.floor((vectors - self.starts) / self.steps), 0, 255).astype(np.uint8)

    def to_int8(self, vectors: Float32Array) -> Int8Array:
        """`to_uint8` minus 128."""
        return (self.to_uint8(vectors) ^ np.uint8(0x80)).view(np.int8)
