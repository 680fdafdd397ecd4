"""What the gateway counts. Each worker writes its own row of numbers; `exposition` reads the sum of all rows."""

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rosebed.core.errors import ERROR_TABLE
from rosebed.ivy.upstream.balancer import Balancer
from rosebed.ivy.worker_rows import WorkerRows

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Bucket bounds of request times."""
STATUSES = tuple(sorted({200, 422, 424, 500} | {mapping.http_status for mapping in ERROR_TABLE.values()}))
"""Every status the gateway answers with."""
COUNTERS = {
    "inputs": "Inputs embedded",
    "tokens": "Tokens embedded, special tokens included",
    "truncated_inputs": "Inputs embedded of which only a part fitted",
    "upstream_retries": "Requests sent again because an inference server went away",
}
"""Name → meaning."""

_IN_FLIGHT = 0
"""Column of the requests being answered."""
MAX_ROUTES = 256
_ROUTE_COLUMNS = len(STATUSES) + len(SECONDS) + 2
"""Per route: answers of each status, answers in each time interval, their seconds."""
_STATUS_OFFSETS = {status: offset for offset, status in enumerate(STATUSES)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouteTotals:
    """One route, over all workers."""

    by_status: Mapping[int, float]
    """Answers of each status."""
    by_interval: AnySequence[float]
    """Answers up to each of `SECONDS`, and the rest."""
    seconds: float
    """Time taken by all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTotals:
    """One model, over all workers."""

    counters: Mapping[str, float]
    ready: Mapping[str, float]
    """Address as configured → working connections to what is there."""
    outstanding: Mapping[str, float]
    """The same → tokens asked for and not answered yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Totals:
    """Everything, over all workers."""

    routes: Mapping[str, RouteTotals]
    models: AnySequence[ModelTotals]
    """In the order of the configuration."""
    in_flight: float
    """Requests being answered."""


class RouteMetrics:
    """The numbers of one route in this worker."""

    def __init__(self, own: "memoryview[float]", first_column: int) -> None:
        self._own = own
        self._first = first_column

    def began(self) -> None:
        """A request is being answered."""
        self._own[_IN_FLIGHT] += 1

    def finished(self, status: int, seconds: float) -> None:
        """A request was answered."""
        own, first = self._own, self._first
        own[_IN_FLIGHT] -= 1
        own[first + _STATUS_OFFSETS[status]] += 1
        own[first + len(STATUSES) + bisect_left(SECONDS, seconds)] += 1
        own[first + _ROUTE_COLUMNS - 1] += seconds


class Metrics:
    """All numbers of one worker, in a row that other workers can read.

    A row holds the requests in flight; for each model its counters, then connections and outstanding tokens of its
    addresses; then the routes.
    """

    def __init__(self, targets: AnySequence[AnySequence[str]], folder: Path | None = None) -> None:
        """`targets` are each model's addresses, as configured, and the same for all workers.

        `folder` is shared by the workers of one server; None where there is only this one.
        """
        self._targets = tuple(map(tuple, targets))
        self._columns = {name: column for column, name in enumerate(COUNTERS)}
        sizes = [len(COUNTERS) + 2 * len(addresses) for addresses in self._targets]
        self._models = list(accumulate(sizes[:-1], initial=1))
        self._routes = 1 + sum(sizes)
        self._paths: list[str] = []
        self._rows = WorkerRows(self._routes + MAX_ROUTES * _ROUTE_COLUMNS, folder)
        self._rows.own[_IN_FLIGHT] = 0  # of a dead worker, whose row this was; its other gauges are sampled soon

    def own_in_flight(self) -> int:
        """Requests that this worker is answering."""
        return int(self._rows.own[_IN_FLIGHT])

    def route(self, path: str) -> RouteMetrics:
        """The numbers of one route; asked for once per path, in the same order by every worker."""
        self._paths.append(path)
        return RouteMetrics(self._rows.own, self._first_column(len(self._paths) - 1))

    def _first_column(self, route: int) -> int:
        return self._routes + route * _ROUTE_COLUMNS

    def count(self, model: int, name: str, amount: int) -> None:
        """Add to one of `COUNTERS` of the model with that index."""
        self._rows.own[self._models[model] + self._columns[name]] += amount

    def sample(self, balancers: AnySequence[Balancer]) -> None:
        """Write down what is true of this worker's replicas at this moment; one balancer per model."""
        own = self._rows.own
        for first, balancer in zip(self._models, balancers, strict=True):
            ready = [float(address.num_ready) for address in balancer.addresses]
            outstanding = [float(address.outstanding_tokens) for address in balancer.addresses]
            for column, value in enumerate([*ready, *outstanding], first + len(COUNTERS)):
                own[column] = value

    def total(self) -> Totals:
        """The sum over all workers, now."""
        row = self._rows.total()
        return Totals(
            routes={path: _route_totals(row[self._first_column(i) :]) for i, path in enumerate(self._paths)},
            models=[
                _model_totals(row[first:], targets) for first, targets in zip(self._models, self._targets, strict=True)
            ],
            in_flight=float(row[0]),
        )


def _model_totals(columns: npt.NDArray[np.float64], targets: tuple[str, ...]) -> ModelTotals:
    counters, gauges = columns[: len(COUNTERS)].tolist(), columns[len(COUNTERS) :].tolist()
    return ModelTotals(
        counters=dict(zip(COUNTERS, counters, strict=True)),
        ready=dict(zip(targets, gauges, strict=False)),
        outstanding=dict(zip(targets, gauges[len(targets) :], strict=False)),
    )


def _route_totals(columns: npt.NDArray[np.float64]) -> RouteTotals:
    return RouteTotals(
        by_status=dict(zip(STATUSES, columns.tolist(), strict=False)),
        by_interval=columns[len(STATUSES) : _ROUTE_COLUMNS - 1].tolist(),
        seconds=float(columns[_ROUTE_COLUMNS - 1]),
    )
