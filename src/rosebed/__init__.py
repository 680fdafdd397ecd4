"""Rosebed: serving of text embedding models.

Importing this package imports nothing heavy: each name below is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rosebed.core.version import __version__

if TYPE_CHECKING:
    from rosebed.client import AsyncClient, Client, TokenClient
    from rosebed.core.errors import RosebedError
    from rosebed.embedder import Embedder as Embedder  # not in __all__: a bare install has no engine
    from rosebed.scorer import Scorer as Scorer

__all__ = [
    "AsyncClient",
    "Client",
    "RosebedError",
    "TokenClient",
    "__version__",
]

_HOMES = {
    "AsyncClient": "rosebed.client",
    "Client": "rosebed.client",
    "Embedder": "rosebed.embedder",
    "RosebedError": "rosebed.core.errors",
    "Scorer": "rosebed.scorer",
    "TokenClient": "rosebed.client",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
