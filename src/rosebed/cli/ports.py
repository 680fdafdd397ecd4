"""A TCP port that stays ours while the processes that listen on it come and go."""

import socket
from collections.abc import Generator
from contextlib import contextmanager

from rosebed.core.errors import ConfigError


@contextmanager
def reserved_port(host: str, port: int) -> Generator[int]:
    """`port` of `host`, or a free one for 0, kept while the context lasts. ConfigError if somebody has it.

    Our own workers share the port (SO_REUSEPORT), as Granian's do. The reservation is bound but never listens, so
    that it gets no connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Without SO_REUSEPORT: two servers that both set it would share one port, and each get half the requests.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            port = probe.getsockname()[1]
        reservation = socket.socket(family, socket.SOCK_STREAM)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind((host, port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host} --port {port}: cannot listen there: {error}") from error
    with reservation:
        yield port
