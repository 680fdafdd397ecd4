"""Writes TOML: the little of it that a config file needs, as the standard library only reads it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def toml_text(values: Mapping[str, Any], tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """A document of plain values (texts, numbers, true and false, sequences of those) and arrays of such tables."""
    parts = [_lines(values)]
    for name, rows in tables.items():
        parts += [f"\n[[{name}]]\n{_lines(row)}" for row in rows]
    return "".join(parts)


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        # JSON's texts are TOML's, but for one control character that JSON lets pass.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)
