"""Connections are tested on the event loop of workers, and on Python's own, which is stricter with transports."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_OWN = {"asyncio": asyncio.new_event_loop}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return _OWN | {"uvloop": uvloop.new_event_loop} if item.path.stem == "test_ivy_http1_connection" else _OWN
