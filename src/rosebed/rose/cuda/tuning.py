"""`rosebed tune`: measures this GPU and writes the table that engines on it choose kernels by.

Knows what is measured (`tune`, `tune_attention`) and where tables lie (`tables`), not how either is done.
"""

import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelSpec
from rosebed.rose.cuda.attention_choice import ATTENTION, AttentionShape, attention_rows
from rosebed.rose.cuda.float8 import check_capability
from rosebed.rose.cuda.linear_table import FLOAT8_PRODUCTS, PRODUCTS, ProductShape, rows_of
from rosebed.rose.cuda.load import table_key
from rosebed.rose.cuda.shapes import model_shapes
from rosebed.rose.cuda.tables import Table, find_table, user_folder, write_table
from rosebed.rose.cuda.tune import Measurement, tune_products
from rosebed.rose.cuda.tune_attention import tune_attention


def tune_gpu(spec: ModelSpec | None, *, device: torch.device, float8: bool, out: Path | None) -> Path:
    """Measure the shapes of `spec`'s model, or of those that the tables here list; the file that was written.

    What the table in use says of other shapes is kept. ConfigError if the chip cannot do it or `out` be written.
    """
    torch.cuda.set_device(device)
    capability = torch.cuda.get_device_capability(device)
    if float8:
        check_capability(capability, str(device))
    key = table_key(device)
    known = find_table(key)
    path = out or user_folder() / key.file_name
    products, attention = shapes_to_measure(spec, known)
    measurement = Measurement(pdl=capability[0] >= 9, float8=float8)
    name = FLOAT8_PRODUCTS if float8 else PRODUCTS
    measured = {
        name: tune_products(products, measurement, processes=len(os.sched_getaffinity(0))),
        ATTENTION: tune_attention(attention, device),
    }
    write_table(path, key, with_rows(known, measured))
    return path


def shapes_to_measure(
    spec: ModelSpec | None, known: Table
) -> tuple[tuple[ProductShape, ...], tuple[AttentionShape, ...]]:
    """ConfigError if there is neither a model nor a table that lists shapes."""
    if spec is not None:
        shapes = model_shapes(spec)
        return shapes.products, (shapes.attention,)
    products, attention = tuple(rows_of(known.get(PRODUCTS, []))), tuple(attention_rows(known))
    if not products:
        raise ConfigError("no table for this GPU ships, so there are no shapes to measure again: give a MODEL")
    return products, attention


def with_rows(known: Table, measured: Table) -> dict[str, list[dict[str, Any]]]:
    """The lists of `known`, with what was measured in place of rows of the same shapes."""
    names = [name for name in (PRODUCTS, FLOAT8_PRODUCTS, ATTENTION) if name in known or measured.get(name)]
    return {name: _replaced(name, known.get(name, []), measured.get(name, [])) for name in names}


def _replaced(name: str, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shape = [field.name for field in fields(AttentionShape if name == ATTENTION else ProductShape)]

    def shapes_in(rows: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
        return {tuple(row[part] for part in shape) for row in rows}

    measured = shapes_in(new)
    return [row for row in old if not shapes_in([row]) & measured] + new
