"""Typed reads of a checkpoint's JSON. Every complaint names the file and the key."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from rosebed.core.errors import CheckpointError

Json = Mapping[str, Any]


def positive_int(values: Json, key: str, *, file: str) -> int:
    """values[key], which must be a whole number of at least 1."""
    value = values.get(key)
    if not _is_int(value) or value < 1:
        raise CheckpointError(f"{file}: {key} should be a positive integer, not {value!r}")
    return value


def optional_number(values: Json, key: str, *, file: str) -> int | None:
    """values[key] as a whole number, None if absent or null. transformers writes some of them as huge floats."""
    value = values.get(key)
    if value is None:
        return None
    if not (_is_int(value) or (isinstance(value, float) and value.is_integer())):
        raise CheckpointError(f"{file}: {key} should be a whole number, not {value!r}")
    return int(value)


def flag(values: Json, key: str, *, default: bool, file: str) -> bool:
    """values[key], which must be true or false; `default` if absent or null."""
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CheckpointError(f"{file}: {key} should be true or false, not {value!r}")
    return value


def positive_ints(values: Json, key: str, *, file: str) -> tuple[int, ...]:
    """values[key], which must be a list of positive integers; empty if absent or null."""
    items = values.get(key)
    if items is None:
        return ()
    if not isinstance(items, list) or not all(_is_int(item) and item > 0 for item in items):
        raise CheckpointError(f"{file}: {key} should be a list of positive integers, not {items!r}")
    return tuple(items)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
