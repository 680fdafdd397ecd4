"""Ports and Unix sockets: who may share one, and who is refused."""

import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from rosebed.core.errors import ConfigError
from rosebed.core.ports import free_port, is_answered, reserved_port, shared_listener, shared_port, unix_listener

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


def test_processes_that_share_a_port_all_get_connections() -> None:
    with shared_port(HOST, 0) as port, shared_listener(HOST, port) as one, shared_listener(HOST, port) as two:
        for listener in (one, two):
            listener.listen()
        clients = [socket.create_connection((HOST, port)) for _ in range(64)]
        for listener in (one, two):
            listener.settimeout(5)
            listener.accept()[0].close()
        for client in clients:
            client.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_names_and_addresses_of_either_kind(host: str) -> None:
    with shared_port(host, 0) as port, shared_listener(host, port) as listener:
        listener.listen()
        socket.create_connection((host, port), timeout=5).close()


def test_a_host_without_an_address_is_named() -> None:
    with (
        pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid --port 0: cannot listen there"),
        shared_port("no.such.host.invalid", 0),
    ):
        pass


def test_a_unix_socket_is_there_as_long_as_it_listens(tmp_path: Path) -> None:
    path = tmp_path / "ivy.sock"
    with unix_listener(str(path)):
        assert is_answered(str(path))
    assert not path.exists()


def test_a_unix_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "ivy.sock")
    with unix_listener(path):
        with pytest.raises(ConfigError, match=f"--uds {path}: somebody listens there already"), unix_listener(path):
            pass
        assert is_answered(path)


def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ivy.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with unix_listener(str(path)):
        assert is_answered(str(path))


def test_a_link_to_nothing_is_said_to_be_one(tmp_path: Path) -> None:
    path, target = tmp_path / "ivy.sock", tmp_path / "gone.sock"
    path.symlink_to(target)
    says = f"--uds {path}: a link is there, to {target}, where nothing is"
    with pytest.raises(ConfigError, match=says), unix_listener(str(path)):
        pass
    assert path.is_symlink()


def test_a_unix_socket_that_another_has_replaced_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "ivy.sock"
    with unix_listener(str(path)):
        path.unlink()
        path.write_text("another's")
    assert path.exists()


def test_what_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with pytest.raises(ConfigError, match="what is there is no socket"), unix_listener(str(path)):
        pass
    assert path.read_text() == "text"
    with pytest.raises(ConfigError, match="cannot listen there"), unix_listener(str(tmp_path / "no" / "folder")):
        pass
