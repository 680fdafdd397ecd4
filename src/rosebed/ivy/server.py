"""Runs the gateway: one address, and worker processes behind it. Knows nothing of what they answer."""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from rosebed.core.ports import shared_port, unix_listener
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.model import int8_ranges_of, read_spec
from rosebed.ivy.worker import Order
from rosebed.ivy.workers import WorkerFailed, Workers
from rosebed.text.tokenizer import check_tokenizer

_log = logging.getLogger(__name__)


def serve(config: IvyConfig, *, on_listening: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT. `on_listening` is told the port (0 for a Unix socket), before workers are up.

    ConfigError or CheckpointError for what cannot work; SystemExit, not 0, if no worker can start.
    """
    with _address(config) as (port, listener), tempfile.TemporaryDirectory(prefix="rosebed-") as metrics_folder:
        for model in config.models:
            if model.model is not None:
                spec = read_spec(model.model, model)
                check_tokenizer(spec)
                int8_ranges_of(spec, model)
        order = Order(
            config=replace(config, port=port),
            metrics_folder=metrics_folder,
            parent=os.getpid(),
            listener=listener,
            log_level=logging.getLogger().getEffectiveLevel(),
        )
        if on_listening is not None:
            on_listening(port)
        _log.info("listening on %s, workers: %d", config.uds or f"{config.host} port {port}", config.workers)
        try:
            asyncio.run(Workers(order, config.workers).run())
        except WorkerFailed as failure:
            _log.error("%s: giving up", failure)
            sys.exit(failure.exit_code)


@contextmanager
def _address(config: IvyConfig) -> Generator[tuple[int, int | None]]:
    """The port that workers share, or the descriptor of the Unix socket that they inherit."""
    if config.uds is None:
        with shared_port(config.host, config.port) as port:
            yield port, None
    else:
        with unix_listener(config.uds) as listener:
            yield 0, listener.fileno()
