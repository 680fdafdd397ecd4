"""Typed reads of a checkpoint's JSON, the only ones there are. Every complaint names the file and the key.

A number is read by name, and `_RANGES` says what that name may be: a key that is not there cannot be read. The upper
ends are far beyond any model that exists. They keep a damaged file from asking for more memory than there is before
the weights can contradict it.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from rosebed.core.errors import CheckpointError

Json = Mapping[str, Any]

_WIDTH = (1, 1 << 17)
_LAYERS = (1, 1 << 10)
_HEADS = (1, 1 << 12)
_FEED_FORWARD = (1, 1 << 20)

_RANGES: Mapping[str, tuple[float, float]] = {
    "dim": _WIDTH,
    "false_token_id": (0, 1 << 24),
    "head_dim": (1, 1 << 12),
    "hidden_dim": _FEED_FORWARD,
    "hidden_size": _WIDTH,
    "in_features": _WIDTH,
    "intermediate_size": _FEED_FORWARD,
    "layer_norm_eps": (0, 1),
    "matryoshka_dimensions": _WIDTH,
    "max_position_embeddings": (1, 1 << 20),
    "max_seq_length": (1, float("inf")),
    "model_max_length": (1, float("inf")),
    "n_heads": _HEADS,
    "n_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": _HEADS,
    "num_labels": (1, 1 << 16),
    "out_features": _WIDTH,
    "pad_token_id": (0, 1 << 24),
    "relative_attention_num_buckets": (4, 511),
    "rms_norm_eps": (0, 1),
    "rope_theta": (0, 1e12),
    "true_token_id": (0, 1 << 24),
    "type_vocab_size": (0, 1 << 16),
    "vocab_size": (1, 1 << 24),
}
"""Key → least and most, both allowed."""


def positive_int(values: Json, key: str, *, file: str) -> int:
    """values[key], which must be a whole number of at least 1."""
    value = values.get(key)
    if not _is_int(value) or value < 1:
        raise CheckpointError(f"{file}: {key} should be a positive integer, not {value!r}")
    return int(_in_range(value, key, file))


def optional_number(values: Json, key: str, *, file: str) -> int | None:
    """values[key] as a whole number, None if absent or null. transformers writes some of them as huge floats."""
    value = values.get(key)
    if value is None:
        return None
    if not (_is_int(value) or (isinstance(value, float) and value.is_integer())):
        raise CheckpointError(f"{file}: {key} should be a whole number, not {value!r}")
    return int(_in_range(value, key, file))


def positive_float(values: Json, key: str, *, default: float, file: str) -> float:
    """values[key], which must be a number above 0; `default` if absent or null."""
    value = values.get(key)
    if value is None:
        return default
    if not (_is_int(value) or isinstance(value, float)) or not value > 0:
        raise CheckpointError(f"{file}: {key} should be a positive number, not {value!r}")
    return float(_in_range(value, key, file))


def flag(values: Json, key: str, *, default: bool, file: str) -> bool:
    """values[key], which must be true or false; `default` if absent or null."""
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CheckpointError(f"{file}: {key} should be true or false, not {value!r}")
    return value


def optional_text(values: Json, key: str, *, file: str) -> str | None:
    """values[key], which must be a string; None if absent or null."""
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise CheckpointError(f"{file}: {key} should be a string, not {value!r}")
    return value


def optional_object(values: Json, key: str, *, file: str) -> Json:
    """values[key], which must be an object; empty if absent or null."""
    value = values.get(key)
    if value is not None and not isinstance(value, dict):
        raise CheckpointError(f"{file}: {key} should be an object, not {value!r}")
    return value or {}


def texts(values: Json, key: str, *, file: str) -> tuple[str, ...]:
    """values[key], which must be a list of strings; empty if absent or null."""
    items = values.get(key)
    if items is None:
        return ()
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise CheckpointError(f"{file}: {key} should be a list of strings, not {items!r}")
    return tuple(items)


def positive_ints(values: Json, key: str, *, file: str) -> tuple[int, ...]:
    """values[key], which must be a list of positive integers; empty if absent or null."""
    items = values.get(key)
    if items is None:
        return ()
    if not isinstance(items, list) or not all(_is_int(item) and item > 0 for item in items):
        raise CheckpointError(f"{file}: {key} should be a list of positive integers, not {items!r}")
    return tuple(int(_in_range(item, key, file)) for item in items)


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _in_range(value: float, key: str, file: str) -> float:
    least, most = _RANGES[key]
    if value < least:
        raise CheckpointError(f"{file}: {key} should be at least {least}, not {value}")
    if value > most:
        raise CheckpointError(f"{file}: {key} should be at most {most}, not {value}")
    return value
