"""Ports: who may share one, and who is refused."""

import socket
from collections.abc import Generator

import pytest

from rosebed.core.errors import ConfigError
from rosebed.core.ports import free_port, numeric_address, reserved_port, shared_port

HOST = "127.0.0.1"


@pytest.fixture
def other() -> Generator[socket.socket]:
    """Another server's socket, willing to share its port; it does not listen yet."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((HOST, 0))
        yield bound


def test_a_listener_s_port_is_refused_although_it_would_share(other: socket.socket) -> None:
    other.listen()
    port = other.getsockname()[1]
    for take in (reserved_port, shared_port):
        with pytest.raises(ConfigError, match=f"--host {HOST} --port {port}: "), take(HOST, port):
            pass
    with pytest.raises(ConfigError, match=f"--port {port}: cannot listen there"):
        free_port(HOST, port)


def test_only_a_server_under_a_supervisor_takes_a_reserved_port(other: socket.socket) -> None:
    port = other.getsockname()[1]
    with shared_port(HOST, port) as taken:
        assert taken == port
    with pytest.raises(ConfigError), reserved_port(HOST, port):
        pass


def test_port_0_is_a_free_one_that_is_kept() -> None:
    with reserved_port(HOST, 0) as port, shared_port(HOST, port) as again:
        assert 0 < port == again
    assert free_port(HOST, port) == port


def test_an_address_of_another_machine_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match=r"--host 192\.0\.2\.1 --port 0: cannot listen there"),
        shared_port("192.0.2.1", 0),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "address"),
    [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0"), ("::1", "::1")],
)
def test_a_name_becomes_an_address_and_an_address_stays(host: str, address: str) -> None:
    assert numeric_address(host) == address


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid is neither an address nor a name"):
        numeric_address("no.such.host.invalid")
