"""Settings of a Tulip server."""

from dataclasses import dataclass

from rosebed.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TulipConfig:
    """One inference server. ConfigError names a bad value."""

    host: str = "127.0.0.1"
    """Address to listen on; unix:PATH is a socket file, and then there is no port."""
    port: int = 50051
    """Port to listen on; 0 takes a free one."""
    max_queued_tokens: int = 4_194_304
    """Tokens of admitted, unfinished sequences; this limit and the next three hold per lane."""
    max_queued_sequences: int = 65_536
    """Admitted, unfinished sequences."""
    max_queued_spans: int = 262_144
    """Pool spans of admitted, unfinished sequences."""
    max_queued_output_bytes: int = 1 << 30
    """Bytes of answer that admitted, unfinished sequences will take."""
    max_request_sequences: int = 2048
    """Sequences of one request."""
    max_message_bytes: int = 64 << 20
    """Largest message taken from a client."""
    chunk_bytes: int = 256 << 10
    """Answers on a stream over this size come in several messages."""
    max_unsent_bytes: int = 64 << 20
    """Finished answers waiting on a slow reader; over this, nothing more is read from its stream."""
    bulk_wait_s: float = 0.1
    """Longest that queued bulk work goes without a batch while online work is queued, or three times what its last
    batch took."""
    stall_factor: float = 10.0
    """A step is overdue after this many times its predicted time …"""
    stall_floor_s: float = 2.0
    """… plus this: then the server is not ready until the step ends."""
    fatal_s: float = 30.0
    """The process ends when its event loop makes no progress for this long, or a step for this long and stall_factor
    times its predicted time."""
    metrics_port: int | None = None
    """Port of a Prometheus endpoint, 0 for a free one; None serves none."""

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigError("--host should be an address or unix:PATH, not empty")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"--{name.replace('_', '-')} should lie in [{least}, {most}], not be {value!r}")


_MOST = 1 << 62
_MOST_S = 86_400
_INT32 = (1 << 31) - 1  # gRPC's limit on its limit
_RANGES = {
    "port": (0, 65_535),
    "max_queued_tokens": (1, _MOST),
    "max_queued_sequences": (1, _MOST),
    "max_queued_spans": (1, _MOST),
    "max_queued_output_bytes": (1, _MOST),
    "max_request_sequences": (1, _INT32),
    "max_message_bytes": (1024, _INT32),
    "chunk_bytes": (1024, _INT32),
    "max_unsent_bytes": (1024, _MOST),
    "bulk_wait_s": (0, _MOST_S),
    "stall_factor": (1, 1_000_000),
    "stall_floor_s": (0, _MOST_S),
    "fatal_s": (1, _MOST_S),
    "metrics_port": (0, 65_535),
}
