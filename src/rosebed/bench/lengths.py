"""Requests of the open scenarios, without contents: from the trace that ships, a file like it, or a distribution."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rosebed.bench.requests import RequestShape
from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane

MIXED = Path(__file__).parent / "traces" / "mixed.json"
NUM_DRAWN = 1000
"""Requests drawn from a distribution before the first comes again."""

_LANES = {lane.name.lower(): lane for lane in Lane}


def request_shapes(lengths: str, *, seed: int) -> tuple[RequestShape, ...]:
    """What `--lengths` names. ConfigError if that is no trace and no distribution."""
    name, *parameters = lengths.split(":")
    if name in _DISTRIBUTIONS:
        return _drawn(name, parameters, lengths, seed)
    return read_trace(MIXED if lengths == "mixed" else Path(lengths))


def read_trace(path: Path) -> tuple[RequestShape, ...]:
    """The requests of a file `{"requests": [["online" or "bulk", [tokens, …]], …]}`. ConfigError if it is none."""
    try:
        requests = json.loads(path.read_bytes())["requests"]
        shapes = tuple(_shape(lane, tokens) for lane, tokens in requests)
    except OSError as error:
        raise ConfigError(f"--lengths {path} is no distribution and cannot be read as a file: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--lengths {path} is not a trace of requests: {error!r}") from error
    if not shapes:
        raise ConfigError(f"--lengths {path} holds no requests")
    return shapes


def _shape(lane: str, tokens: Any) -> RequestShape:
    if not tokens or not all(isinstance(count, int) and count > 0 for count in tokens):
        raise ValueError(f"tokens should be numbers above 0, not {tokens!r}")
    return RequestShape(tuple(tokens), _LANES[lane])


def _drawn(name: str, parameters: list[str], lengths: str, seed: int) -> tuple[RequestShape, ...]:
    draw, usage = _DISTRIBUTIONS[name]
    try:
        drawn = draw(np.random.default_rng([seed, 2]), *map(float, parameters))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--lengths {lengths} should be {usage}: {error}") from error
    return tuple(RequestShape((int(tokens),)) for tokens in np.maximum(1, np.rint(drawn)))


def _fixed(_random: np.random.Generator, tokens: float) -> Any:
    return np.full(NUM_DRAWN, tokens)


def _uniform(random: np.random.Generator, low: float, high: float) -> Any:
    return random.uniform(low, high, NUM_DRAWN)


def _lognormal(random: np.random.Generator, median: float, sigma: float) -> Any:
    return random.lognormal(np.log(median), sigma, NUM_DRAWN)


_DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "fixed": (_fixed, "fixed:TOKENS"),
    "uniform": (_uniform, "uniform:LOW:HIGH"),
    "lognormal": (_lognormal, "lognormal:MEDIAN:SIGMA"),
}
