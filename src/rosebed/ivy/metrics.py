"""What the gateway counts. Each worker writes its own row of numbers; `exposition` reads the sum of all rows."""

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rosebed.core.errors import ERROR_TABLE
from rosebed.ivy.upstream.replica import Replica
from rosebed.ivy.worker_rows import WorkerRows

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Bucket bounds of request times."""
STATUSES = tuple(sorted({200, 500} | {mapping.http_status for mapping in ERROR_TABLE.values()}))
"""Every status the gateway answers with."""
COUNTERS = {
    "inputs": "Inputs embedded",
    "tokens": "Tokens embedded, special tokens included",
    "truncated_inputs": "Inputs embedded of which only a part fitted",
    "upstream_retries": "Requests sent again because an inference server went away",
}
"""Name → meaning."""

MAX_ROUTES = 128
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
class Totals:
    """Everything, over all workers."""

    routes: Mapping[str, RouteTotals]
    counters: Mapping[str, float]
    in_flight: float
    """Requests being answered."""
    ready: Mapping[str, float]
    """Replica → workers that have a working connection to it."""
    outstanding: Mapping[str, float]
    """Replica → tokens asked for and not answered yet."""


class RouteMetrics:
    """The numbers of one route in this worker."""

    def __init__(self, own: "memoryview[float]", first_column: int) -> None:
        self._own = own
        self._first = first_column

    def finished(self, status: int, seconds: float) -> None:
        """A request was answered."""
        own, first = self._own, self._first
        own[first + _STATUS_OFFSETS[status]] += 1
        own[first + len(STATUSES) + bisect_left(SECONDS, seconds)] += 1
        own[first + _ROUTE_COLUMNS - 1] += seconds


class Metrics:
    """All numbers of one worker, in a row that other workers can read."""

    def __init__(self, targets: AnySequence[str], folder: Path | None = None) -> None:
        """`folder` is shared by the workers of one server; None where there is only this one."""
        self.targets = tuple(targets)
        self._columns = {name: column for column, name in enumerate(COUNTERS)}
        self._gauges = len(COUNTERS)
        self._routes = self._gauges + 1 + 2 * len(self.targets)
        self._paths: list[str] = []
        self._rows = WorkerRows(self._routes + MAX_ROUTES * _ROUTE_COLUMNS, folder)

    def route(self, path: str) -> RouteMetrics:
        """The numbers of one route; asked for once per path, in the same order by every worker."""
        self._paths.append(path)
        return RouteMetrics(self._rows.own, self._first_column(len(self._paths) - 1))

    def _first_column(self, route: int) -> int:
        return self._routes + route * _ROUTE_COLUMNS

    def count(self, name: str, amount: int) -> None:
        """Add to one of `COUNTERS`."""
        self._rows.own[self._columns[name]] += amount

    def sample(self, in_flight: int, replicas: AnySequence[Replica]) -> None:
        """Write down what is true of this worker at this moment."""
        ready = [float(replica.ready) for replica in replicas]
        outstanding = [float(replica.outstanding_tokens) for replica in replicas]
        for offset, value in enumerate([float(in_flight), *ready, *outstanding]):
            self._rows.own[self._gauges + offset] = value

    def total(self) -> Totals:
        """The sum over all workers, now."""
        row = self._rows.total()
        ready, outstanding = row[self._gauges + 1 : self._routes].reshape(2, len(self.targets)).tolist()
        return Totals(
            routes={path: _route_totals(row[self._first_column(i) :]) for i, path in enumerate(self._paths)},
            counters={name: float(row[column]) for name, column in self._columns.items()},
            in_flight=float(row[self._gauges]),
            ready=dict(zip(self.targets, ready, strict=True)),
            outstanding=dict(zip(self.targets, outstanding, strict=True)),
        )


def _route_totals(columns: npt.NDArray[np.float64]) -> RouteTotals:
    return RouteTotals(
        by_status=dict(zip(STATUSES, columns.tolist(), strict=False)),
        by_interval=columns[len(STATUSES) : _ROUTE_COLUMNS - 1].tolist(),
        seconds=float(columns[_ROUTE_COLUMNS - 1]),
    )
