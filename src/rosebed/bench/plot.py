"""A report as a picture: the latency of each case, and what throughput costs in p99."""

from pathlib import Path
from typing import Any

import numpy as np

from rosebed.bench.run import BenchReport
from rosebed.core.errors import ConfigError
from rosebed.core.extras import needs_extra


def check_plot_path(path: Path) -> None:
    """ConfigError if no picture can be written to `path`, MissingExtra without matplotlib."""
    with needs_extra("--plot", "bench"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    endings = sorted(FigureCanvasAgg.filetypes)
    if path.suffix.removeprefix(".").lower() not in endings:
        raise ConfigError(f"--plot {path} should end in one of {', '.join(endings)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: there is no folder {path.absolute().parent}")


def save_plot(report: BenchReport, path: Path) -> None:
    """Write a picture in the format that the name of `path` ends in. OSError if it cannot be written."""
    with needs_extra("--plot", "bench"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(12, 5), layout="constrained")
    figure.suptitle(f"{report.scenario}: {report.info.server}, {report.info.model}")
    latency, throughput = figure.subplots(1, 2)
    _draw_latencies(latency, report)
    _draw_throughput(throughput, report)
    figure.savefig(path, dpi=120)


def _draw_latencies(axes: Any, report: BenchReport) -> None:
    """Share of requests answered within each latency."""
    for result in report.results:
        latencies = result.latencies_ms
        axes.step(latencies, np.arange(1, len(latencies) + 1) / max(1, len(latencies)), label=result.case.label)
    axes.set(xscale="log", xlabel="latency, ms", ylabel="share of requests", ylim=(0, 1.02))
    axes.legend(fontsize="small")
    axes.grid(visible=True, alpha=0.3)


def _draw_throughput(axes: Any, report: BenchReport) -> None:
    measured = [(result.figures, result.figures.latency, result.case.label) for result in report.results]
    points = [(figures.sequences_per_s, latency.p99, label) for figures, latency, label in measured if latency]
    axes.plot([x for x, _, _ in points], [y for _, y, _ in points], marker="o")
    for x, y, label in points:
        axes.annotate(label, (x, y), fontsize="small", xytext=(4, 4), textcoords="offset points")
    axes.set(yscale="log", xlabel="sequences/s", ylabel="p99 latency, ms")
    axes.grid(visible=True, alpha=0.3)
