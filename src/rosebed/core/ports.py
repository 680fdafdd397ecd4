"""TCP ports that gateway processes share (SO_REUSEPORT), and how to keep everybody else off them.

Two servers that both set SO_REUSEPORT on one port would each get half its requests, and neither an error.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager

from rosebed.core.errors import ConfigError


def free_port(host: str, port: int) -> int:
    """`port` of `host`, or one the system chooses for 0. ConfigError if anybody has it, even without listening."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # Without SO_REUSEPORT, so that it fails where anybody is bound.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _bind(probe, host, port)


@contextmanager
def reserved_port(host: str, port: int) -> Generator[int]:
    """`port` of `host`, or a free one for 0, kept for processes of ours that come and go while the context lasts.

    ConfigError if anybody has it.
    """
    with shared_port(host, free_port(host, port)) as reserved:
        yield reserved


@contextmanager
def shared_port(host: str, port: int) -> Generator[int]:
    """The same for the processes of a server whose supervisor may have reserved the port: only listeners count.

    The reservation is bound but never listens, so that it gets no connections.
    """
    if port:
        _refuse_listener(host, port)
    with socket.socket(_family(host), socket.SOCK_STREAM) as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        yield _bind(reservation, host, port)


def numeric_address(host: str) -> str:
    """The address that a host name stands for here; an address stays as it is. ConfigError if it stands for none."""
    try:
        return str(socket.getaddrinfo(host, None, family=_family(host), type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(f"--host {host} is neither an address nor a name that has one: {error}") from error


def _refuse_listener(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return
    raise ConfigError(f"--host {host} --port {port}: somebody listens there already")


def _bind(unbound: socket.socket, host: str, port: int) -> int:
    try:
        unbound.bind((host, port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host} --port {port}: cannot listen there: {error}") from error
    return unbound.getsockname()[1]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
