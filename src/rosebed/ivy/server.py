"""Runs the gateway: Granian in front of N worker processes. Knows of the application only how to make it."""

import gc
import logging
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.log import LogLevels
from starlette.applications import Starlette

from rosebed.core.ports import numeric_address, shared_port
from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.model import read_spec
from rosebed.ivy.parent import end_with_parent
from rosebed.text.tokenizer import check_tokenizer

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16_384
"""Per worker, idle ones included; more wait unanswered. What may be asked at once is for the replicas to say."""
YOUNG_OBJECTS = 10_000
"""New objects between collections: at Python's own 700, a busy worker would spend a thirtieth of its time on them."""
SWITCH_INTERVAL_S = 50e-6
"""How long a thread that tokenizes may keep the event loop waiting for the interpreter; Python's own is 5 ms."""
STOP_GRACE_S = 10
"""Workers still busy this long after a stop are killed."""

_LOG_THROUGH_ROOT = {"incremental": True, "handlers": {}, "loggers": {"_granian": {"propagate": True}}}
"""Granian's own messages go where all others go."""


class _Server(Granian):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    """Granian, ended at once by a second signal."""

    def signal_handler_interrupt(self, *args: Any, **kwargs: Any) -> None:
        if self.interrupt_signal:
            for worker in self.wrks:
                worker.kill()
        super().signal_handler_interrupt(*args, **kwargs)


def serve(config: IvyConfig, *, on_listening: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. `on_listening` is told the port, before the workers are up.

    ConfigError or CheckpointError for what cannot work; SystemExit, not 0, if the workers keep failing.
    """
    with (
        shared_port(config.host, config.port) as port,
        tempfile.TemporaryDirectory(prefix="rosebed-") as metrics_folder,
    ):
        for model in config.models:
            if model.model is not None:
                check_tokenizer(read_spec(model.model, model))
        server = _Server(
            target="rosebed.ivy",  # only a name: the loader below makes the application
            address=numeric_address(config.host),  # Granian takes no names
            port=port,
            interface=Interfaces.ASGI,
            workers=config.workers,
            loop=Loops.uvloop,
            http=HTTPModes.http1,
            runtime_mode=RuntimeModes.st,
            websockets=False,
            backpressure=MAX_CONNECTIONS,
            log_level=LogLevels.warning,
            log_dictconfig=_LOG_THROUGH_ROOT,
            respawn_failed_workers=True,
            workers_kill_timeout=STOP_GRACE_S,
        )
        load = partial(load_worker, replace(config, port=port), Path(metrics_folder), os.getpid())
        if on_listening is not None:
            server.on_startup(partial(on_listening, port))
        _log.info("listening on %s port %d, workers: %d", config.host, port, config.workers)
        server.serve(target_loader=load, wrap_loader=False)


def load_worker(config: IvyConfig, metrics_folder: Path, parent: int) -> Starlette:
    """The application, in a worker process of its own that the process `parent` started."""
    end_with_parent(parent)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    application = create_app(config, metrics_folder=metrics_folder)
    start_up = application.router.lifespan_context

    @asynccontextmanager
    async def uncollected(running: Starlette) -> AsyncGenerator[None]:
        """Keep what start-up made out of every collection: a full one would stop the loop for a tenth of a second."""
        async with start_up(running):
            gc.collect()
            gc.freeze()
            gc.set_threshold(YOUNG_OBJECTS)
            try:
                yield
            finally:
                gc.unfreeze()  # or the interpreter's own clean-up would find it leaked

    application.router.lifespan_context = uncollected
    return application
