"""Options as callers in Python hand them over, who need not be typed. InvalidInput names the parameter."""

from operator import index
from typing import Any

import numpy as np

from rosebed.core.errors import ConfigError, InvalidInput


def as_dimensions(value: Any, param: str = "dimensions") -> int | None:
    """`value` as an int of at least 1, whatever kind of whole number it is; None stays None."""
    if value is None:
        return None
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidInput(f"{param} should be a whole number, not {value!r}", param=param)
    if number < 1:
        raise InvalidInput(f"{param} should be at least 1, not {number}", param=param)
    return number


def as_flag(value: Any, param: str) -> bool | None:
    """`value` as a bool, numpy's included; None stays None."""
    if value is not None and not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{param} should be True, False or None, not {value!r}", param=param)
    return None if value is None else bool(value)


def as_text(value: Any, param: str) -> str | None:
    """`value`, which must be valid Unicode; None stays None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{param} should be text, not {type(value).__name__}", param=param)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{param} is not valid Unicode: it has a lone surrogate", param=param) from None
    return value


def as_timeout_s(value: Any) -> float:
    """`value`, seconds, as a float above 0. ConfigError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < float(value) < float("inf"):
        raise ConfigError(f"timeout_s should be a number of seconds above 0, not {value!r}")
    return float(value)
