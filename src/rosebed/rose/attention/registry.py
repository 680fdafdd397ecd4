"""Attention backends by name, imported when asked for: most need libraries that most machines lack."""

from importlib import import_module
from typing import cast

from rosebed.core.errors import ConfigError
from rosebed.rose.attention.base import AttentionBackend, AttentionSpec

BACKENDS = {
    "sdpa": "rosebed.rose.attention.sdpa:SdpaAttention",
}
"""Name → module:class. The class takes one AttentionSpec, and raises ConfigError for a spec beyond its reach."""


def create_attention(name: str, spec: AttentionSpec) -> AttentionBackend:
    """A backend for `spec`. ConfigError if there is none of that name."""
    if name not in BACKENDS:
        raise ConfigError(f"--attention {name!r} is unknown; there are {', '.join(BACKENDS)}")
    module, _, class_name = BACKENDS[name].partition(":")
    return cast(AttentionBackend, getattr(import_module(module), class_name)(spec))
