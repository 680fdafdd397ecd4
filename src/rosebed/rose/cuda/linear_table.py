"""Which kernel computes a product, by shape and token count: cuBLAS, or ours cut into given tiles.

Choices come from a measured table (`tables`); shapes it does not list take the rule of thumb below. Knows no tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.tables import Table
from rosebed.rose.ops.triton.small_linear import LinearTiles

MAX_SMALL_TOKENS = 512
"""From here on cuBLAS fills the chip by itself and is not even measured against."""

MOST_UNMEASURED = 256
"""Tokens up to which ours is taken for a shape that no table lists."""
MOST_UNMEASURED_FLOAT8 = 64
"""The same where weights are float8: beyond, the scaled product's arithmetic counts for more than bytes."""

PRODUCTS = "products"
FLOAT8_PRODUCTS = "float8_products"
"""Names in a table of what was measured with bfloat16 weights, and with float8 ones."""


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
    most_unmeasured: int = MOST_UNMEASURED

    def choose(self, shape: ProductShape, num_tokens: int) -> LinearTiles | None:
        """Tiles for `small_linear`, or None for cuBLAS."""
        for most_tokens, tiles in self.rows.get(shape, ()):
            if num_tokens <= most_tokens:
                return tiles
        return None if shape in self.rows or num_tokens > self.most_unmeasured else default_tiles(shape, num_tokens)


def default_tiles(shape: ProductShape, num_tokens: int) -> LinearTiles | None:
    """A cut that gives some 128 programs of a few hundred inner columns each; None where ours would not fit or win."""
    block_out = 32 if shape.kind is ProductKind.GATED else 64
    if shape.out_features % block_out or shape.in_features % 64:
        return None
    block_tokens = 16 if num_tokens <= 16 else 32 if num_tokens <= 32 else 64
    split = 1
    if shape.kind is ProductKind.UNREDUCED:
        programs = shape.out_features // block_out * -(-num_tokens // block_tokens)
        while programs * split < 96 and shape.in_features % (split * 2 * 128) == 0 and split < 8:
            split *= 2
    block_in = 128 if (shape.in_features // split) % 128 == 0 else 64
    return LinearTiles(block_tokens=block_tokens, block_out=block_out, block_in=block_in, split=split)


def load_table(table: Table, *, float8: bool = False) -> LinearTable:
    """The choices of a table. ConfigError if they cannot be read.

    Where none were measured with float8 weights, those with bfloat16 ones are taken for few tokens: what decides there
    is how fast weights arrive.
    """
    if not float8:
        return LinearTable(_rows_in(table, PRODUCTS))
    if FLOAT8_PRODUCTS in table:
        return LinearTable(_rows_in(table, FLOAT8_PRODUCTS), MOST_UNMEASURED_FLOAT8)
    rows = {
        shape: tuple(choice for choice in choices if choice[0] <= MOST_UNMEASURED_FLOAT8)
        for shape, choices in _rows_in(table, PRODUCTS).items()
    }
    return LinearTable(rows, MOST_UNMEASURED_FLOAT8)


def _rows_in(table: Table, name: str) -> Rows:
    try:
        return rows_of(table.get(name, []))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the table of kernels has {name} of another form than `rosebed tune` writes") from error


def rows_of(entries: list[dict[str, Any]]) -> Rows:
    """Parse the `products` list of a table file."""
    rows: dict[ProductShape, list[tuple[int, LinearTiles | None]]] = {}
    for entry in entries:
        shape = ProductShape(ProductKind(entry["kind"]), entry["out_features"], entry["in_features"])
        tiles = None if entry["tiles"] is None else LinearTiles(**entry["tiles"])
        rows.setdefault(shape, []).append((entry["most_tokens"], tiles))
    return {shape: tuple(sorted(choices, key=lambda choice: choice[0])) for shape, choices in rows.items()}
