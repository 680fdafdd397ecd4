"""Which kernel computes a product, by shape and token count: cuBLAS, or ours cut into given tiles.

The shipped table was measured on the chip it names (`rosebed tune` measures another); shapes it does not list take
the nearest rule of thumb below. Knows no tensors.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any

from rosebed.rose.ops.triton.small_linear import LinearTiles

MAX_SMALL_TOKENS = 512
"""From here on cuBLAS fills the chip by itself and is not even measured against."""


class ProductKind(StrEnum):
    """What surrounds a product, since that decides what the alternatives cost."""

    PLAIN = "plain"
    UNREDUCED = "unreduced"
    """Feeds a norm, which can add partial sums."""
    ACTIVATION = "activation"
    GATED = "gated"


@dataclass(frozen=True, slots=True)
class ProductShape:
    """x [num_tokens, in_features] times weight [out_features, in_features] transposed; a gated weight has twice as
    many rows."""

    kind: ProductKind
    out_features: int
    in_features: int


Rows = Mapping[ProductShape, tuple[tuple[int, LinearTiles | None], ...]]
"""Per shape: (largest num_tokens the row is for, tiles or None for cuBLAS), ascending."""


@dataclass(frozen=True, slots=True)
class LinearTable:
    """Measured choices, with a rule of thumb for the rest."""

    rows: Rows

    def choose(self, shape: ProductShape, num_tokens: int) -> LinearTiles | None:
        """Tiles for `small_linear`, or None for cuBLAS."""
        for most_tokens, tiles in self.rows.get(shape, ()):
            if num_tokens <= most_tokens:
                return tiles
        return None if shape in self.rows else default_tiles(shape, num_tokens)


def default_tiles(shape: ProductShape, num_tokens: int) -> LinearTiles | None:
    """A cut that gives some 128 programs of a few hundred inner columns each; None where ours would not fit or win."""
    block_out = 32 if shape.kind is ProductKind.GATED else 64
    if num_tokens > 256 or shape.out_features % block_out or shape.in_features % 64:
        return None
    block_tokens = 16 if num_tokens <= 16 else 32 if num_tokens <= 32 else 64
    split = 1
    if shape.kind is ProductKind.UNREDUCED:
        programs = shape.out_features // block_out * -(-num_tokens // block_tokens)
        while programs * split < 96 and shape.in_features % (split * 2 * 128) == 0 and split < 8:
            split *= 2
    block_in = 128 if (shape.in_features // split) % 128 == 0 else 64
    return LinearTiles(block_tokens=block_tokens, block_out=block_out, block_in=block_in, split=split)


def load_table(chip: str) -> LinearTable:
    """The table shipped for a chip, by the name CUDA gives it; an empty one where none is."""
    file = resources.files("rosebed.rose.cuda").joinpath("tables", f"{chip.lower().replace(' ', '_')}.json")
    return LinearTable(rows_of(json.loads(file.read_text())["products"]) if file.is_file() else {})


def rows_of(entries: list[dict[str, Any]]) -> Rows:
    """Parse the `products` list of a table file."""
    rows: dict[ProductShape, list[tuple[int, LinearTiles | None]]] = {}
    for entry in entries:
        shape = ProductShape(ProductKind(entry["kind"]), entry["out_features"], entry["in_features"])
        tiles = None if entry["tiles"] is None else LinearTiles(**entry["tiles"])
        rows.setdefault(shape, []).append((entry["most_tokens"], tiles))
    return {shape: tuple(sorted(choices, key=lambda choice: choice[0])) for shape, choices in rows.items()}
