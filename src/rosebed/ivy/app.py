"""Puts one worker together: models, replicas, routes. The only module of the gateway that knows all the others."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import orjson

from rosebed.ivy.backend import Backend
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.dialects.base import Parts
from rosebed.ivy.dialects.openai import ERRORS
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.embedding import EmbeddingService
from rosebed.ivy.http.api_document import api_document
from rosebed.ivy.http.api_page import api_page
from rosebed.ivy.http.application import Application
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Endpoint, Operation, Resource
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.packer import Packer
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http.router import Router
from rosebed.ivy.metrics import Metrics
from rosebed.ivy.routes import Routes
from rosebed.ivy.scoring import ScoringService
from rosebed.ivy.status import Status
from rosebed.ivy.workload import Workload

SAMPLE_INTERVAL_S = 1.0


def create_app(config: IvyConfig, *, metrics_folder: Path | None = None) -> Application:
    """What answers one worker's requests. Workers of one server share `metrics_folder`."""
    return _Worker(config, metrics_folder).application()


class _Worker:
    def __init__(self, config: IvyConfig, metrics_folder: Path | None) -> None:
        self._config = config
        self._metrics = Metrics([model.tulips for model in config.models], metrics_folder)
        self._backends = [
            Backend(model, partial(self._metrics.count, index), resolve_every_s=config.resolve_every_s)
            for index, model in enumerate(config.models)
        ]
        self._directory = ModelDirectory(self._backends)
        self._workload = Workload()
        self._service = EmbeddingService(self._directory, self._workload, max_inputs=config.max_inputs)
        self._scoring = ScoringService(self._directory, self._workload, max_inputs=config.max_inputs)
        self._status = Status(self._backends, self._metrics, root_path=config.root_path)

    def application(self) -> Application:
        routes = self._routes()
        resources = _with_description(routes.resources(), root_path=self._config.root_path)
        router = Router(
            [(resource.path, self._endpoint(resource)) for resource in resources],
            self._endpoint(routes.unmatched()),
            root_path=self._config.root_path,
        )
        packer = Packer(self._config.gzip_min_bytes, self._workload) if self._config.gzip_min_bytes else None
        return Application(router, self._running, packer=packer)

    def _routes(self) -> Routes:
        config = self._config
        parts = Parts(
            service=self._service,
            scoring=self._scoring,
            directory=self._directory,
            workload=self._workload,
            intake=BodyIntake(
                max_bytes=config.max_body_bytes, timeout_s=config.body_timeout_s, workload=self._workload
            ),
            max_inputs=config.max_inputs,
            num_workers=config.workers,
            num_in_progress=self._metrics.own_in_flight,
        )
        return Routes(parts, self._status)

    def _endpoint(self, resource: Resource) -> Endpoint:
        return Endpoint(
            resource,
            api_key=self._config.api_key,
            observer=self._metrics.route(resource.path),
        )

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(self._workload.close)
            for backend in self._backends:
                await backend.load()
            balancing = [backend.balancer.run() for backend in self._backends]
            for work in (*balancing, self._sample()):
                await stack.enter_async_context(_background(work))
            yield

    async def _sample(self) -> None:
        while True:
            self._status.sample()
            await asyncio.sleep(SAMPLE_INTERVAL_S)


def _with_description(resources: list[Resource], *, root_path: str) -> list[Resource]:
    """The same, and two routes that describe them all, themselves included."""

    async def document(_call: Call) -> Reply:
        return Reply(200, orjson.dumps(described))

    async def page(_call: Call) -> Reply:
        return Reply(200, api_page(described), content_type=b"text/html; charset=utf-8")

    operations = {
        "/openapi.json": Operation(handler=document, summary="This API as an OpenAPI document"),
        "/docs": Operation(handler=page, summary="This API as a page to read"),
    }
    described_too = [
        Resource(path=path, operations={"GET": operation}, error_shape=ERRORS) for path, operation in operations.items()
    ]
    all_resources = [*resources, *described_too]
    described = api_document(all_resources, root_path=root_path)
    return all_resources


@asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
