"""Keeps the import of OpenVINO from telling its makers, over the network, that it happened."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

_TELEMETRY = "openvino_telemetry"


@contextmanager
def silenced() -> Generator[None]:
    """Imports of OpenVINO inside find no telemetry installed, which it can do without."""
    if _TELEMETRY in sys.modules:
        yield  # somebody else has imported it before, and answers for it
        return
    sys.modules[_TELEMETRY] = None  # pyright: ignore[reportArgumentType]  (how Python marks what cannot be imported)
    try:
        yield
    finally:
        del sys.modules[_TELEMETRY]
