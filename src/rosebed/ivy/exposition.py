"""The numbers of all workers as Prometheus reads them."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rosebed.ivy.metrics import COUNTERS, SECONDS, Totals

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "rosebed_ivy_"


def exposition(totals: Totals) -> bytes:
    """Prometheus's text format, version 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Families(totals))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield self._seconds()
        for name, meaning in COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, meaning, value=self._totals.counters[name])
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
            "Workers with a working connection to an inference server",
            labels=["replica"],
        )
        outstanding = GaugeMetricFamily(
            _PREFIX + "replica_outstanding_tokens", "Tokens asked for and not answered yet", labels=["replica"]
        )
        for target, connections in self._totals.ready.items():
            ready.add_metric([target], connections)
            outstanding.add_metric([target], self._totals.outstanding[target])
        yield from (ready, outstanding)
