"""An engine's figures in Prometheus' format: one family a figure, labelled by lane."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rosebed.core.engine_statistics import EngineStatistics

_GAUGES = {
    "graphs": "CUDA graphs held for replay.",
    "graph_bytes": "Device memory that the graphs took.",
    "capture_seconds": "Time that compiling and capturing took, warming up included.",
}
_COUNTERS = {
    "replays": "Steps that replayed a graph.",
    "eager_steps": "Steps that ran kernel by kernel.",
    "cold_steps": "Steps that ran kernel by kernel with a key that nothing had run before, and may have compiled.",
    "live_captures": "Graphs captured on the way to a step, which waited for them.",
    "idle_captures": "Graphs captured, for frequent sizes, while there was nothing else to do.",
    "padding_tokens": "Tokens that steps computed beyond their own.",
}
"""Field of `SlotStatistics` → what it means. Its `tokens` are the server's own."""


def engine_families(statistics: EngineStatistics, prefix: str) -> Iterator[Metric]:
    """Nothing for an engine that counts nothing."""
    if not statistics:
        return
    for family_type, figures in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, text in figures.items():
            family = family_type(prefix + name, text, labels=["lane"])
            for lane, slot in statistics.items():
                family.add_metric([lane.name.lower()], getattr(slot, name))
            yield family
