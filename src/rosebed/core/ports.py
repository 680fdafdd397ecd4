"""TCP ports that gateway processes share (SO_REUSEPORT), and how to keep everybody else off them; Unix sockets.

Two servers that both set SO_REUSEPORT on one port would each get half its requests, and neither an error.
"""

import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from rosebed.core.errors import ConfigError

BACKLOG = 4096
"""Connections that wait to be accepted; the system may allow fewer."""


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


def shared_listener(host: str, port: int) -> socket.socket:
    """A socket of one of the processes that share `port` of `host`, for a server to listen on."""
    listener = socket.socket(_family(host), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bind(listener, host, port)
    return listener


@contextmanager
def unix_listener(path: str) -> Generator[socket.socket]:
    """A listening Unix socket at `path`, for processes to inherit; removed in the end.

    ConfigError if somebody listens there, or something else is there. A socket that nobody listens on is replaced.
    """
    file = Path(path)
    try:
        _remove_stale(file)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
    except OSError as error:
        raise ConfigError(f"--uds {path}: cannot listen there: {error}") from error
    with listener:
        listener.listen(BACKLOG)
        own = file.stat()
        try:
            yield listener
        finally:
            with suppress(OSError):
                if os.path.samestat(own, file.stat()):  # not another's, put there since
                    file.unlink()


def is_answered(path: str) -> bool:
    """Whether somebody listens on the Unix socket `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # its queue is full
        except OSError:
            return False
        return True


def _remove_stale(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        if file.is_symlink():
            raise ConfigError(f"--uds {file}: a link is there, to {file.readlink()}, where nothing is") from None
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"--uds {file}: what is there is no socket")
    if is_answered(str(file)):
        raise ConfigError(f"--uds {file}: somebody listens there already")
    file.unlink()


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
