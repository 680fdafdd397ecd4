"""Measure which kernel computes each product best on this chip: the rows that `LinearTable` reads.

Each candidate runs over so many distinct weights that none stays in L2, as in a model, followed by the norm where
the product feeds one. Runs for minutes; never on live traffic.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

import torch

from rosebed.rose.cuda.float8 import Float8Ops, quantize_weight
from rosebed.rose.cuda.linear_table import ProductKind, ProductShape
from rosebed.rose.cuda.ops import CudaOps
from rosebed.rose.cuda.timing import graph_time_us
from rosebed.rose.ops.base import Activation
from rosebed.rose.ops.triton.small_linear import LinearTiles

TOKEN_STEPS = (16, 32, 64, 128, 192, 256, 384, 512)
SHARED_MEMORY = 220 * 1024
"""Bytes that the pipelined tiles of one program may take (227 KB on Hopper, less some for the compiler)."""
WEIGHT_BYTES = 150 << 20
"""Weights cycled through per measurement: well over any L2."""

Product = Callable[[torch.Tensor], object]
Timer = Callable[[ProductShape, int, LinearTiles | None], float]
"""µs of a product for so many tokens, cut into tiles or left to the library."""


@dataclass(frozen=True, slots=True)
class OneChoice:
    """A table that always says the same."""

    tiles: LinearTiles | None

    def choose(self, shape: ProductShape, num_tokens: int) -> LinearTiles | None:  # noqa: ARG002
        return self.tiles


def candidates(shape: ProductShape, num_tokens: int) -> Iterator[LinearTiles]:
    """Cuts worth trying: enough programs to fill the chip, not more than its memory holds."""
    splits = (1, 2, 4, 8) if shape.kind is ProductKind.UNREDUCED else (1,)
    outs = (16, 32, 64) if shape.kind is ProductKind.GATED else (32, 64, 128)
    swaps = (False,) if shape.kind is ProductKind.GATED else (False, True)
    for block_tokens, block_out, split, swap, num_warps in itertools.product(
        (16, 32, 64, 128), outs, splits, swaps, (4, 8)
    ):
        block_in = 128 if (shape.in_features // split) % 128 == 0 else 64
        tiles = LinearTiles(
            block_tokens=block_tokens,
            block_out=block_out,
            block_in=block_in,
            split=split,
            swap=swap,
            num_warps=num_warps,
            num_stages=4 if num_tokens <= 256 else 3,
        )
        if _plausible(tiles, shape, num_tokens):
            yield tiles


def _plausible(tiles: LinearTiles, shape: ProductShape, num_tokens: int) -> bool:
    span = shape.in_features // tiles.split
    if shape.out_features % tiles.block_out or span % tiles.block_in or span < 2 * tiles.block_in:
        return False
    weight_rows = tiles.block_out * (2 if shape.kind is ProductKind.GATED else 1)
    stage = (tiles.block_tokens + weight_rows) * tiles.block_in * 2
    token_blocks = -(-num_tokens // tiles.block_tokens)
    programs = shape.out_features // tiles.block_out * tiles.split * token_blocks
    return (
        tiles.num_stages * stage <= SHARED_MEMORY
        and 40 <= programs <= 800
        and tiles.block_tokens <= max(16, num_tokens)
        and token_blocks <= 8
        and not (tiles.swap and tiles.block_out < 64)
        and not (tiles.num_warps == 8 and tiles.block_tokens * weight_rows < 64 * 64)
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """How products are made and timed on this GPU."""

    pdl: bool
    float8: bool

    def product(self, shape: ProductShape, num_tokens: int, tiles: LinearTiles | None) -> Product:
        """A function that computes the product with a given weight, on data of its own."""
        ops = (Float8Ops if self.float8 else CudaOps)(OneChoice(tiles), self.pdl)
        x, residual = _random(num_tokens, shape.in_features), _random(num_tokens, shape.out_features)
        bias = _random(_weight_rows(shape))
        match shape.kind:
            case ProductKind.PLAIN:
                return lambda weight: ops.linear(x, weight, bias)
            case ProductKind.ACTIVATION:
                return lambda weight: ops.linear_activation(x, weight, bias, Activation.GELU)
            case ProductKind.GATED:
                return lambda weight: ops.linear_silu_mul(x, weight)
            case ProductKind.UNREDUCED:
                return lambda weight: ops.linear_add_rms_norm(x, weight, residual, bias, 1e-6)

    def weight(self, shape: ProductShape) -> torch.Tensor:
        weight = _random(_weight_rows(shape), shape.in_features)
        return quantize_weight(weight) if self.float8 else weight

    def time_us(self, shape: ProductShape, num_tokens: int, tiles: LinearTiles | None) -> float:
        """One product (with the norm behind it where `kind` is UNREDUCED) in a chain of them."""
        num_bytes = _weight_rows(shape) * shape.in_features * (1 if self.float8 else 2)
        weights = [self.weight(shape) for _ in range(max(4, min(64, WEIGHT_BYTES // num_bytes)))]
        product = self.product(shape, num_tokens, tiles)
        return graph_time_us(lambda: [product(weight) for weight in weights]) / len(weights)

    def compiles(self, shape: ProductShape, tiles: LinearTiles) -> bool:
        """Whether a cut runs at all. The compiled kernel then lies in Triton's cache on disk."""
        try:
            self.product(shape, 16, tiles)(self.weight(shape))
            torch.cuda.synchronize()
        except Exception:  # whatever the compiler or driver says of this cut, it is out
            return False
        return True


def _weight_rows(shape: ProductShape) -> int:
    return shape.out_features * (2 if shape.kind is ProductKind.GATED else 1)


def _random(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16) * 0.02


def tune_products(shapes: Iterable[ProductShape], measurement: Measurement, *, processes: int) -> list[dict[str, Any]]:
    """Rows for a table's products, each with its measured µs and the library's."""
    shapes = list(shapes)
    jobs = {(shape, tiles) for shape in shapes for tokens in TOKEN_STEPS for tiles in candidates(shape, tokens)}
    ordered = sorted(jobs, key=repr)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        runs = pool.map(measurement.compiles, *zip(*ordered, strict=True), chunksize=8) if ordered else ()
        running = {job for job, runs_here in zip(ordered, runs, strict=True) if runs_here}
    return choose_products(shapes, running, measurement.time_us)


def choose_products(
    shapes: Iterable[ProductShape], running: Collection[tuple[ProductShape, LinearTiles]], time_us: Timer
) -> list[dict[str, Any]]:
    """Time the cuts that run, and the library's product; the fastest for each shape and number of tokens."""
    rows: list[dict[str, Any]] = []
    for shape, tokens in itertools.product(shapes, TOKEN_STEPS):
        cuts = [tiles for tiles in candidates(shape, tokens) if (shape, tiles) in running]
        library = time_us(shape, tokens, None)
        best, tiles = min([(library, None), *((time_us(shape, tokens, cut), cut) for cut in cuts)], key=_first)
        rows.append(
            {
                **asdict(shape),
                "most_tokens": tokens,
                "tiles": None if tiles is None else asdict(tiles),
                "us": round(best, 2),
                "cublas_us": round(library, 2),
            }
        )
    return rows


def _first(pair: tuple[float, LinearTiles | None]) -> float:
    return pair[0]
