"""`TulipServer`: one engine behind gRPC, from binding the port to the last answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import grpc.aio
import numpy as np
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_NAME
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from rosebed.core.engine import Engine, EngineInfo
from rosebed.core.errors import ConfigError, PayloadTooLarge, RosebedError
from rosebed.core.ports import is_answered
from rosebed.core.types import Sequence, whole_span
from rosebed.proto.link import link_path
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.exposition import MetricsEndpoint, TulipCollector
from rosebed.tulip.health import HEALTH_NAME, HealthServicer
from rosebed.tulip.intake import Intake
from rosebed.tulip.link import LinkServer
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.predictor import token_bucket
from rosebed.tulip.readiness import Gate
from rosebed.tulip.request import RequestState
from rosebed.tulip.servicer import SERVICE_NAME, TulipServicer
from rosebed.tulip.session import StreamSession, Write
from rosebed.tulip.step_loop import StepLoop
from rosebed.tulip.watchdog import Watchdog, exit_process

MIN_PING_INTERVAL_MS = 5000
"""Clients may ping idle connections to notice a lost host; grpc's own limit of five minutes would cut them off."""


class TulipServer:
    """Serves one engine. `start`, `stop` and `wait_closed` belong to one event loop; the engine stays its owner's."""

    def __init__(self, engine: Engine, config: TulipConfig, *, on_fatal: Callable[[str], None] = exit_process) -> None:
        """`on_fatal` is called, from any thread, when only a new process can serve on; by default it ends this one."""
        self._engine = engine
        self._config = config
        self._on_fatal = on_fatal
        self._gate = Gate()
        self._metrics = TulipMetrics()
        self._closed = asyncio.Event()
        self._parts: _Parts | None = None

    @property
    def port(self) -> int:
        """The port listened on, once `start` has bound it."""
        return self._running.port

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics endpoint, if there is one."""
        endpoint = self._running.metrics_endpoint
        return None if endpoint is None else endpoint.port

    @property
    def step_loop(self) -> StepLoop:
        return self._running.step_loop

    @property
    def _running(self) -> "_Parts":
        if self._parts is None:
            raise ValueError("the server was not started")
        return self._parts

    async def start(self) -> None:
        """Listen at once, then warm the engine up, and return when one real inference has succeeded.

        ConfigError if the port is taken; whatever warming up raises.
        """
        self._parts = await self._listen()
        try:
            await asyncio.to_thread(self._engine.warm_up)
            await first_inference(self._parts.step_loop, self._engine.info, self._config)
        except BaseException:
            await self.stop(0)
            raise
        self._gate.open()

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, answer what was taken within `grace_s`, then drop the rest and close."""
        self._gate.stop()
        link = self._running.link
        async with asyncio.TaskGroup() as ending:
            ending.create_task(self._running.server.stop(grace_s))
            if link is not None:
                ending.create_task(link.stop(grace_s))
        self._running.watchdog.stop()
        self._running.step_loop.close()
        if self._running.metrics_endpoint is not None:
            await asyncio.to_thread(self._running.metrics_endpoint.close)
        self._closed.set()

    async def wait_closed(self) -> None:
        """Return when `stop` is through."""
        await self._closed.wait()

    async def _listen(self) -> "_Parts":
        config = self._config
        on_fatal = self._fatal_hook()
        step_loop = StepLoop(self._engine, config, metrics=self._metrics, on_fatal=on_fatal)
        server = grpc.aio.server(options=_options(config))
        intake = Intake(self._engine, config, step_loop=step_loop, gate=self._gate, metrics=self._metrics)
        self._add_services(server, intake)
        port = _bind(server, config.host, config.port)
        endpoint = None
        if config.metrics_port is not None:
            collector = TulipCollector(self._engine, self._metrics, step_loop.scheduler, self._gate)
            host = "127.0.0.1" if config.host.startswith("unix:") else config.host
            endpoint = MetricsEndpoint(collector, host=host, port=config.metrics_port)
        await server.start()
        link = self._link(intake)
        if link is not None:
            await link.start()
        watchdog = Watchdog(step_loop.scheduler, config, on_stall=self._gate.stall, on_fatal=on_fatal)
        return _Parts(
            server=server, link=link, port=port, step_loop=step_loop, watchdog=watchdog, metrics_endpoint=endpoint
        )

    def _fatal_hook(self) -> Callable[[str], None]:
        loop = asyncio.get_running_loop()

        def fail(reason: str) -> None:
            # A closed loop serves nobody who could be told.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._gate.fail)
            self._on_fatal(reason)

        return fail

    def _link(self, intake: Intake) -> LinkServer | None:
        """What gateways on this machine use instead of gRPC, where there is a Unix socket to put it beside."""
        path = link_path(self._config.host)
        if path is None:
            return None
        open_session = partial(_open_session, intake, self._gate, self._config)
        return LinkServer(path, open_session, max_message_bytes=self._config.max_message_bytes)

    def _add_services(self, server: grpc.aio.Server, intake: Intake) -> None:
        TulipServicer(self._engine, self._config, intake=intake, gate=self._gate).add_to(server)
        add_HealthServicer_to_server(HealthServicer(self._gate, (SERVICE_NAME,)), server)
        enable_server_reflection((SERVICE_NAME, HEALTH_NAME, REFLECTION_NAME), server)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What exists from `start` on."""

    server: grpc.aio.Server
    link: LinkServer | None
    port: int
    step_loop: StepLoop
    watchdog: Watchdog
    metrics_endpoint: MetricsEndpoint | None


def _open_session(intake: Intake, gate: Gate, config: TulipConfig, write: Write) -> StreamSession:
    return StreamSession(intake, gate, config, write=write)


def _options(config: TulipConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ]


def _address(host: str, port: int) -> str:
    if host.startswith("unix:"):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    address = _address(host, port)
    if host.startswith("unix:") and is_answered(host.removeprefix("unix:")):
        raise ConfigError(f"cannot listen on {address}: another process does")  # gRPC would take the file from it
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: {error}") from error


async def first_inference(step_loop: StepLoop, info: EngineInfo, config: TulipConfig) -> None:
    """Run one sequence, with every output the model has, all the way through the scheduler; raises why it failed.

    Its time is the first that predictions are made from, so it is as long as the shortest steps that count as one.
    """
    done: asyncio.Future[RequestState] = asyncio.get_running_loop().create_future()
    num_tokens = min(token_bucket(1), info.max_length, config.max_queued_tokens)
    sequence = Sequence(
        token_ids=np.arange(num_tokens, dtype=np.int32) % min(8, info.vocab_size),
        pool_spans=whole_span(num_tokens),
        outputs=frozenset(info.outputs),
    )
    try:
        step_loop.scheduler.submit((sequence,), on_done=done.set_result)
    except PayloadTooLarge as refusal:
        raise ConfigError(
            f"--max-queued-*: one sequence of {num_tokens} tokens would not fit: {refusal.message}"
        ) from refusal
    step_loop.wake()
    state = await done
    error: RosebedError | None = state.failure or state.errors.get(0)
    if error is not None:
        raise error
