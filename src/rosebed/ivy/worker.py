"""One worker process: an event loop, an application, the connections of its share. `ivy.workers` starts it."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from rosebed.core.logs import LINE
from rosebed.core.ports import BACKLOG, shared_listener
from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.http1.access_log import AccessLog
from rosebed.ivy.http1.connections import Connections
from rosebed.ivy.http1.limits import ConnectionLimits
from rosebed.ivy.parent import end_with_parent

YOUNG_OBJECTS = 10_000
"""New objects between collections: at Python's own 700, a busy worker would spend a thirtieth of its time on them."""
SWITCH_INTERVAL_S = 50e-6
"""How long a thread that tokenizes may keep the event loop waiting for the interpreter; Python's own is 5 ms."""
SPARE_FILES = 512
"""Open files of a worker beside its connections."""

UP = b"1"
"""What a worker says when it listens."""
ORDER_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is told by its parent."""

    config: IvyConfig
    metrics_folder: str
    """Shared by all workers of a server."""
    parent: int
    """Its process id."""
    listener: int | None
    """The descriptor of an inherited socket that listens; None to listen on the config's port."""
    log_level: int


def main() -> None:
    """Serve until SIGTERM, on what the parent orders over stdin, a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    with socket.socket(fileno=sys.stdin.fileno()) as parent:
        order = _read_order(parent)
        end_with_parent(order.parent)
        logging.basicConfig(format=LINE, level=order.log_level)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        _allow_files(ConnectionLimits().max_connections + SPARE_FILES)
        uvloop.run(_serve(order, parent))


def _read_order(parent: socket.socket) -> Order:
    with parent.makefile("rb") as stream:
        (size,) = ORDER_LENGTH.unpack(stream.read(ORDER_LENGTH.size))
        return msgspec.msgpack.decode(stream.read(size), type=Order)


def _allow_files(number: int) -> None:
    """Raise this process's own limit on open files, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(order: Order, parent: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    config = order.config
    application = create_app(config, metrics_folder=Path(order.metrics_folder))
    connections = Connections(
        application,
        ConnectionLimits(keep_alive_s=config.keep_alive_s),
        access_log=AccessLog(loop) if config.access_log else None,
    )
    async with application.running(), _uncollected():
        with _listener(order) as listener:
            server = await loop.create_server(connections, sock=listener, backlog=BACKLOG)
            watch = asyncio.create_task(connections.run())
            parent.sendall(UP)
            await stopped.wait()
            server.close()
        await connections.drain()
        watch.cancel()


def _listener(order: Order) -> socket.socket:
    if order.listener is None:
        return shared_listener(order.config.host, order.config.port)
    return socket.socket(fileno=order.listener)


@asynccontextmanager
async def _uncollected() -> AsyncGenerator[None]:
    """Keep what start-up made out of every collection: a full one would stop the loop for a tenth of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        yield
    finally:
        gc.unfreeze()  # or the interpreter's own clean-up would find it leaked


if __name__ == "__main__":
    main()
