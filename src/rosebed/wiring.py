"""Joins ROSE and Tulip in one process. The only place, beside the embedder, where engine and server meet."""

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from rosebed.core.engine import Engine
from rosebed.core.engine_statistics import graphs_line
from rosebed.core.extras import needs_extra
from rosebed.core.model_spec import ModelSpec
from rosebed.rose.config import EngineConfig
from rosebed.tulip.config import TulipConfig

with needs_extra("rosebed tulip", "serve"):
    import uvloop

    from rosebed.rose import load_engine
    from rosebed.tulip.server import TulipServer

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 50e-6
"""How long a thread that holds the interpreter may keep one waiting. At Python's own 5 ms, an engine on a thread of its
own loses as much with every operation beside a busy event loop: seconds a pass."""

GRACE_S = 8.0
"""Time that requests in flight get when the server is told to stop."""


def run_tulip(spec: ModelSpec, engine: EngineConfig, tulip: TulipConfig) -> None:
    """Serve the model until SIGTERM or SIGINT. A `SetupError` says why it cannot be served.

    A server that can no longer compute ends the process by itself, with `tulip.watchdog.EXIT_CODE`.
    """
    started_s = time.monotonic()
    loaded = load_engine(spec, engine)
    log.info("loaded %s on %s in %.1f s", loaded.info.model, loaded.info.device, time.monotonic() - started_s)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvloop.run(serve_until_signal(loaded, tulip))
    finally:
        loaded.close()


async def serve_until_signal(engine: Engine, tulip: TulipConfig) -> None:
    """Run a server around `engine` until SIGTERM or SIGINT, then let what is in flight finish.

    Another signal while it does ends the process at once.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # not Python's own, which would raise KeyboardInterrupt

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    server = TulipServer(engine, tulip)
    await server.start()
    with _start_up_uncollected():
        address = tulip.host if tulip.host.startswith("unix:") else f"{tulip.host}:{server.port}"
        log.info("ready on %s", "; ".join(filter(None, (address, graphs_line(engine.statistics())))))
        await stopped.wait()
        log.info("stopping")
        await server.stop(GRACE_S)


@contextmanager
def _start_up_uncollected() -> Generator[None]:
    """Keep what start-up made out of every collection: a full one over 300,000 objects stops the loop for 0.3 s."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # or the interpreter's own clean-up would find it leaked
