"""The numbers of all workers as Prometheus reads them."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rosebed.ivy.metrics import COUNTERS, SECONDS, Totals

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "rosebed_ivy_"


def exposition(totals: Totals, models: Sequence[str]) -> bytes:
    """Prometheus's text format, version 0.0.4. `models` are their names, in the order of the totals."""
    registry = CollectorRegistry()
    registry.register(_Families(totals, models))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, totals: Totals, models: Sequence[str]) -> None:
        self._totals = totals
        self._models = list(zip(models, totals.models, strict=True))

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield self._seconds()
        for name, meaning in COUNTERS.items():
            family = CounterMetricFamily(_PREFIX + name, meaning, labels=["model"])
            for model, totals in self._models:
                family.add_metric([model], totals.counters[name])
            yield family
        yield GaugeMetricFamily(
            _PREFIX + "requests_in_flight", "HTTP requests being answered", value=self._totals.in_flight
        )
        yield from self._per_replica()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(_PREFIX + "requests", "HTTP requests answered", labels=["route", "status"])
        for path, route in self._totals.routes.items():
            for status, answers in route.by_status.items():
                if answers:
                    family.add_metric([path, str(status)], answers)
        return family

    def _seconds(self) -> Metric:
        family = HistogramMetricFamily(
            _PREFIX + "request_seconds", "From a request's headers to the end of its answer", labels=["route"]
        )
        bounds = [*map(str, SECONDS), "+Inf"]
        for path, route in self._totals.routes.items():
            buckets = list(zip(bounds, accumulate(route.by_interval), strict=True))
            family.add_metric([path], buckets, route.seconds)
        return family

    def _per_replica(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            _PREFIX + "replica_connections",
            "Working connections of workers to an inference server, or to all that a name stands for",
            labels=["model", "replica"],
        )
        outstanding = GaugeMetricFamily(
            _PREFIX + "replica_outstanding_tokens", "Tokens asked for and not answered yet", labels=["model", "replica"]
        )
        for model, totals in self._models:
            for target, connections in totals.ready.items():
                ready.add_metric([model, target], connections)
                outstanding.add_metric([model, target], totals.outstanding[target])
        yield from (ready, outstanding)
