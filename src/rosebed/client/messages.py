"""What the HTTP clients send and understand, as pure functions. Opens no connection; `client.http` does."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from rosebed.core.encodings import from_base64
from rosebed.core.errors import (
    ConfigError,
    InvalidInput,
    Overloaded,
    RequestError,
    RosebedError,
    ServerError,
    Unavailable,
    error_from_code,
)
from rosebed.core.options import as_dimensions, as_flag, as_text
from rosebed.core.texts import as_list
from rosebed.core.types import Float32Array

EMBEDDINGS_PATH = "/v1/embeddings"
MODELS_PATH = "/v1/models"


class EmbedOptions(TypedDict, total=False):
    """What may accompany the texts. Each one left out, or None, does what the server and the checkpoint say."""

    model: str | None
    """One of the served names."""
    dimensions: int | None
    """Leading components to keep, where the model was trained for it."""
    normalize: bool | None
    """Scale each vector to length 1."""
    prompt: str | None
    """Put in front of every text."""
    prompt_name: str | None
    """Name of a prompt that the checkpoint defines."""
    input_type: str | None
    """`query` or `document`: the checkpoint's prompt for that side."""
    truncate: bool | None
    """Cut texts that are too long, instead of refusing them."""


def server_root(base_url: str) -> str:
    """`base_url` without a trailing slash or `/v1`, so that the URL other clients are given works here too.

    ConfigError if it is no URL.
    """
    is_text = isinstance(base_url, str)  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
    if not is_text or not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"base_url should begin with http:// or https://, not be {base_url!r}")
    return base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def headers(api_key: str | None) -> dict[str, str]:
    """Headers of every request. ConfigError for a key that no header can hold."""
    if api_key is None:
        return {}
    is_text = isinstance(api_key, str)  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
    if not is_text or not api_key.isascii() or not api_key.isprintable():
        raise ConfigError("api_key should be a string of printable ASCII characters")
    return {"Authorization": f"Bearer {api_key}"}


def embeddings_body(texts: Sequence[str], options: EmbedOptions) -> dict[str, Any]:
    """The JSON body that asks for `texts`, as base64: a quarter of the bytes of decimal numbers, and exact.

    InvalidInput for what is no list of texts, and for no texts: nobody here knows how long a row would be.
    """
    listed = as_list(texts)
    if not listed:
        raise InvalidInput("texts should hold at least one text", param="texts")
    for index, text in enumerate(listed):
        as_text(text, f"input[{index}]")
    checked = {name: _checked(name, value) for name, value in options.items()}
    given = {name: value for name, value in checked.items() if value is not None}
    return {"input": listed, "encoding_format": "base64", **given}


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "model": as_text,
    "dimensions": as_dimensions,
    "normalize": as_flag,
    "prompt": as_text,
    "prompt_name": as_text,
    "input_type": as_text,
    "truncate": as_flag,
}


def _checked(name: str, value: object) -> Any:
    if name not in _CHECKS:
        raise InvalidInput(f"{name} is no option; these are: {', '.join(_CHECKS)}", param=name)
    return _CHECKS[name](value, name)


def parse_embeddings(content: bytes) -> Float32Array:
    """Vectors of a 200 answer, in the order of the texts: float32[n, dim]."""
    try:
        items = sorted(json.loads(content)["data"], key=lambda item: item["index"])
        return np.stack([from_base64(item["embedding"]) for item in items])
    except (ValueError, TypeError, KeyError) as error:
        raise ServerError(f"the answer is not a list of embeddings: {error!r}") from error


def parse_models(content: bytes) -> list[str]:
    """Served names, from a 200 answer of `/v1/models`."""
    try:
        return [item["id"] for item in json.loads(content)["data"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ServerError(f"the answer is not a list of models: {error!r}") from error


def parse_error(status: int, response_headers: Mapping[str, str], content: bytes) -> RosebedError:
    """The error that an answer other than 200 stands for, of the same type as the one the server raised."""
    error = _named_error(content) or _error_of_status(status, content)
    retry_after = response_headers.get("retry-after", "")
    if isinstance(error, Overloaded | Unavailable) and retry_after.isdigit():
        error.retry_after_s = int(retry_after)
    return error


def _named_error(content: bytes) -> RosebedError | None:
    try:
        body = json.loads(content)["error"]
        error = error_from_code(str(body["code"]), body["message"])
    except (ValueError, TypeError, KeyError):
        return None
    if type(error) is ServerError:  # a code that is not Rosebed's
        return None
    error.param = body.get("param")
    return error


def _error_of_status(status: int, content: bytes) -> RosebedError:
    """For answers that are not Rosebed's own: a proxy in between, or another server altogether."""
    message = f"HTTP {status}: {content[:200].decode(errors='replace').strip() or 'no body'}"
    if status == 429:
        return Overloaded(message)
    if status in (502, 503, 504):
        return Unavailable(message)
    return RequestError(message) if 400 <= status < 500 else ServerError(message)
