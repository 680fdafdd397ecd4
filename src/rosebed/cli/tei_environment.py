"""The environment of a text-embeddings-inference container, understood by `rosebed serve`: images can be swapped.

Source: the arguments of TEI's router, each of which it reads from the environment too. Pure: knows no process's
environment and no command.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rosebed.cli.options import quoted
from rosebed.core.errors import ConfigError

MODEL = "MODEL_ID"
"""An environment that has it is TEI's."""

SHARED = frozenset({"API_KEY", "DEVICE_ID", "HOSTNAME", "PORT", "REVISION"})
"""Names that environments hold for other reasons too: they count only beside MODEL_ID."""

_POOLING = {"cls": "cls", "mean": "mean", "last-token": "last"}
_DTYPES = ("float16", "float32", "bfloat16")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeiEnvironment:
    """What was found."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameter's name → value, as a map of defaults holds it."""
    notes: tuple[str, ...] = ()
    """What somebody who expects TEI should know; no values, which may be secret."""


def read_tei(environment: Mapping[str, str]) -> TeiEnvironment:
    """What TEI's names in `environment` mean here. ConfigError names a variable whose value is not served."""
    is_tei = bool(environment.get(MODEL))
    given = {name: text for name, text in environment.items() if text and (is_tei or name not in SHARED)}
    values: dict[str, Any] = {}
    for name, (parameter, convert) in UNDERSTOOD.items():
        if name in given and (value := convert(name, given[name])) is not None:
            values[parameter] = value
    notes = [
        f"{name} is TEI's and has no effect here: {why}" for name, why in IGNORED.items() if is_tei and name in given
    ]
    if is_tei and "HOSTNAME" in given and values["host"] != given["HOSTNAME"]:
        notes.append("HOSTNAME is no address: listening on 0.0.0.0, as TEI does")
    return TeiEnvironment(values=values, notes=tuple(notes))


def _text(_name: str, text: str) -> str:
    return text


def _texts(_name: str, text: str) -> tuple[str, ...]:
    return (text,)


def _name(_name: str, text: str) -> tuple[str, ...]:
    return (quoted(text),)


def _count(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} should be a whole number, not {text!r}") from None


def _truth(name: str, text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ConfigError(f"{name} should be true or false, not {text!r}")
    return _TRUTHS[text.lower()]


def _dtype(name: str, text: str) -> str:
    if text not in _DTYPES:
        raise ConfigError(f"{name} should be one of {', '.join(_DTYPES)}, not {text!r}")
    return text


def _pooling(name: str, text: str) -> str:
    if text not in _POOLING:
        raise ConfigError(f"{name} should be one of {', '.join(_POOLING)}, not {text!r}")
    return _POOLING[text]


def _address(_name: str, text: str) -> str:
    """A container's HOSTNAME is its id: TEI then listens on all addresses."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - TEI's own
    return text


def _device(name: str, text: str) -> str | None:
    """TEI's default, 0, is no choice: `auto` takes the first GPU too, or the CPU."""
    index = _count(name, text)
    return f"cuda:{index}" if index else None


UNDERSTOOD: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    MODEL: ("models", _texts),
    "REVISION": ("revision", _text),
    "SERVED_MODEL_NAME": ("served_model_names", _name),
    "DTYPE": ("dtype", _dtype),
    "POOLING": ("pooling", _pooling),
    "MAX_BATCH_TOKENS": ("token_budget", _count),
    "MAX_CLIENT_BATCH_SIZE": ("max_inputs", _count),
    "PAYLOAD_LIMIT": ("max_body_bytes", _count),
    "AUTO_TRUNCATE": ("auto_truncate", _truth),
    "DEFAULT_PROMPT_NAME": ("default_prompt_name", _text),
    "DEFAULT_PROMPT": ("default_prompt", _text),
    "HF_API_TOKEN": ("hub_token", _text),
    "DEVICE_ID": ("device", _device),
    "HOSTNAME": ("host", _address),
    "PORT": ("port", _count),
    "API_KEY": ("api_key", _text),
}
"""Variable → the parameter of `rosebed serve` that it means, and what makes a value of its text.

HF_TOKEN and HUGGINGFACE_HUB_CACHE need no line: the hub's library reads them.
"""

IGNORED = {
    "TOKENIZATION_WORKERS": "texts are tokenized in the gateway's workers, --workers",
    "MAX_CONCURRENT_REQUESTS": "what waits is bounded in tokens and sequences, --max-queued-tokens",
    "MAX_BATCH_REQUESTS": "batches are bounded in tokens, --token-budget",
    "DENSE_PATH": "modules.json says which Dense modules there are",
    "UDS_PATH": "gateway and inference server choose their own socket",
    "PROMETHEUS_PORT": "metrics are at /metrics of the server's own port",
    "OTLP_ENDPOINT": "no traces are sent",
    "OTLP_SERVICE_NAME": "no traces are sent",
    "JSON_OUTPUT": "the log is lines of text",
    "DISABLE_SPANS": "the log has no spans",
    "CORS_ALLOW_ORIGIN": "no CORS headers are sent",
}
"""Variable of TEI's → why it does nothing here."""
