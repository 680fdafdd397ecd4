"""A server's counters in Prometheus' format, on a port of their own."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rosebed.core.engine import Engine
from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane
from rosebed.tulip.engine_exposition import engine_families
from rosebed.tulip.metrics import Histogram, TulipMetrics
from rosebed.tulip.readiness import Gate
from rosebed.tulip.scheduler import Scheduler

PREFIX = "rosebed_tulip_"


class MetricsEndpoint:
    """Serves `TulipCollector` over HTTP from a thread."""

    def __init__(self, collector: Collector, *, host: str, port: int) -> None:
        """ConfigError if the port is taken."""
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise ConfigError(f"metrics_port: cannot listen on {host}:{port}: {error}") from error

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class TulipCollector(Collector):
    """Reads a scheduler, its counters and its engine's when scraped, from another thread."""

    def __init__(self, engine: Engine, metrics: TulipMetrics, scheduler: Scheduler, gate: Gate) -> None:
        self._engine = engine
        self._metrics = metrics
        self._scheduler = scheduler
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield from self._histograms()
        yield from engine_families(self._engine.statistics(), PREFIX + "engine_")

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield CounterMetricFamily(PREFIX + "requests", "Requests admitted.", metrics.requests)
        yield CounterMetricFamily(PREFIX + "sequences", "Sequences finished.", metrics.sequences)
        yield CounterMetricFamily(PREFIX + "tokens", "Tokens computed, none of them padding.", metrics.tokens)
        errors = CounterMetricFamily(PREFIX + "errors", "Failed requests and sequences.", labels=["code"])
        for code, count in metrics.errors.copy().items():
            errors.add_metric([code], count)
        yield errors

    def _gauges(self) -> Iterator[Metric]:
        scheduler = self._scheduler
        for quantity in ("sequences", "tokens"):
            queued = GaugeMetricFamily(PREFIX + "queued_" + quantity, f"Queued {quantity}.", labels=["lane"])
            for lane in Lane:
                queued.add_metric([lane.name.lower()], getattr(scheduler.queue.backlog(lane), quantity))
            yield queued
        yield GaugeMetricFamily(PREFIX + "steps_in_flight", "Steps enqueued.", scheduler.num_in_flight)
        yield GaugeMetricFamily(PREFIX + "ready", "1 while requests are taken.", int(self._gate.is_open))
        yield GaugeMetricFamily(
            PREFIX + "tokens_per_second", "Throughput while busy.", scheduler.step_times.tokens_per_s
        )
        predicted = GaugeMetricFamily(
            PREFIX + "predicted_step_seconds", "Step time by token bucket.", labels=["tokens"]
        )
        for bucket, step_ns in dict(scheduler.step_times.table).items():
            predicted.add_metric([str(bucket)], step_ns / 1e9)
        yield predicted

    def _histograms(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _family("step_seconds", "Time the engine works on a step.", metrics.step_seconds)
        yield _family("queue_seconds", "Arrival until the last sequence left the queue.", metrics.queue_seconds)
        yield _family("batch_tokens", "Tokens of a batch.", metrics.batch_tokens)
        yield _family("batch_sequences", "Sequences of a batch.", metrics.batch_sequences)


def _family(name: str, text: str, histogram: Histogram) -> Metric:
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=histogram.total)
