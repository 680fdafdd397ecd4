"""What `serve` refuses before any worker starts."""

import socket

import pytest

from rosebed.core.errors import ConfigError
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.server import serve


def test_a_port_where_somebody_listens_is_refused_although_they_would_share_it() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}: somebody listens there already"):
            serve(IvyConfig(models=(ModelConfig(tulips=("127.0.0.1:1",)),), port=port))
