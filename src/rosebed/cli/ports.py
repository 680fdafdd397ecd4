"""TCP ports that gateway processes share (SO_REUSEPORT), and how to keep everybody else off them.

Two servers that both set SO_REUSEPORT on one port would each get half its requests, and neither an error.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager

from rosebed.core.errors import ConfigError


@contextmanager
def reserved_port(host: str, port: int) -> Generator[int]:
    """`port` of `host`, or a free one for 0, kept for processes of ours that come and go while the context lasts.

    ConfigError if somebody has it. The reservation is bound but never listens, so that it gets no connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Without SO_REUSEPORT, so that it fails where anybody is bound.
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


def refuse_taken_port(host: str, port: int) -> None:
    """ConfigError if somebody listens on `port` of `host`; a reservation of ours does not count."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return
    raise ConfigError(f"--host {host} --port {port}: somebody listens there already")
