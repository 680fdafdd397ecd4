"""What one connection may cost a worker. Bodies have limits of their own, in `ivy.http.intake`."""

from dataclasses import dataclass

SLICE_BYTES = 1 << 14
"""What came is parsed in pieces of so many bytes: of requests sent ahead, no more than fit into one become objects."""
MAX_WAITING_BYTES = 1 << 18
"""Of a body that nobody takes: then the client is kept waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Times and sizes."""

    keep_alive_s: float = 75.0
    """How long a connection may lie idle."""
    head_timeout_s: float = 30.0
    """How long the headers of a request may take to come."""
    linger_s: float = 2.0
    """How long what a refused client still sends is read, so that it gets to read its answer."""
    linger_bytes: int = 8 << 20
    """How much of it."""
    stalled_s: float = 30.0
    """How long a client may take nothing of its answer."""
    max_head_bytes: int = 1 << 16
    """Headers of one request, names and values."""
    max_headers: int = 128
    """Headers of one request."""
    max_target_bytes: int = 1 << 13
    """Path and query."""
    max_connections: int = 16_384
    """Connections of one worker, idle ones included."""
