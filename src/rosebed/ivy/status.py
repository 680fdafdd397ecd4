"""What operators and their tools ask: is it alive, is it ready, what does it count."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from rosebed.core.errors import Unavailable
from rosebed.ivy.backend import Backend
from rosebed.ivy.exposition import CONTENT_TYPE, exposition
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.metrics import Metrics


class Status:
    """Health, readiness and metrics of one worker; the metrics are those of all workers."""

    def __init__(self, backends: Sequence[Backend], metrics: Metrics, *, root_path: str = "") -> None:
        """`root_path` is what a proxy puts before each path."""
        self._backends = backends
        self._metrics = metrics
        self._root_path = root_path

    def resources(self, error_shape: ErrorShape) -> list[Resource]:
        root = Operation(
            handler=self.root, summary="Whether this process lives, and where this API is described", is_open=True
        )
        ready = Operation(
            handler=self.ready, summary="Whether each model has an inference server that answers", is_open=True
        )
        metrics = Operation(handler=self.metrics, summary="Counters, in Prometheus's text format")
        return [
            *self.health_resources(("/health", "/ping"), error_shape),
            Resource(path="/", operations={"GET": root}, error_shape=error_shape),
            Resource(path="/ready", operations={"GET": ready}, error_shape=error_shape),
            Resource(path="/metrics", operations={"GET": metrics}, error_shape=error_shape),
        ]

    def health_resources(self, paths: Iterable[str], error_shape: ErrorShape) -> list[Resource]:
        """The same at each of `paths`."""
        health = Operation(handler=self.health, summary="Whether this process lives", is_open=True)
        return [Resource(path=path, operations={"GET": health}, error_shape=error_shape) for path in paths]

    async def health(self, _call: Call) -> Reply:
        """This worker answers, whatever its replicas do."""
        return Reply(200, orjson.dumps({"status": "ok"}))

    async def root(self, _call: Call) -> Reply:
        """For whoever opens the bare address."""
        root = self._root_path
        return Reply(200, orjson.dumps({"status": "ok", "docs": f"{root}/docs", "openapi": f"{root}/openapi.json"}))

    async def ready(self, _call: Call) -> Reply:
        """One replica of each model is enough; it counts once it has computed a real input for this worker."""
        replicas = [len(backend.balancer.ready) for backend in self._backends]
        names = self._names()
        if not all(replicas):
            without = [name for name, number in zip(names, replicas, strict=True) if name and not number]
            of_which = f" for {', '.join(without)}" if len(names) > 1 and without else ""
            raise Unavailable(f"no inference server is ready{of_which}")
        state: dict[str, Any] = {"status": "ready", "replicas": sum(replicas)}
        if len(names) > 1:
            state["models"] = dict(zip(names, replicas, strict=True))
        return Reply(200, orjson.dumps(state))

    def _names(self) -> list[str]:
        """Each model's first name; empty while it is not known."""
        return [next(iter(backend.names), "") for backend in self._backends]

    async def metrics(self, _call: Call) -> Reply:
        self.sample()
        return Reply(200, exposition(self._metrics.total(), self._names()), content_type=CONTENT_TYPE)

    def sample(self) -> None:
        """Write down this worker's gauges, where a scrape that another worker answers finds them."""
        self._metrics.sample([backend.balancer for backend in self._backends])
