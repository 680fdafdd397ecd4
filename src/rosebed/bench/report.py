"""A report as people read it, and as programs do. Measures nothing."""

import json
from dataclasses import asdict
from typing import Any

from rosebed.bench.config import BenchConfig
from rosebed.bench.environment import Environment
from rosebed.bench.run import BenchReport, CaseResult
from rosebed.bench.statistics import Summary
from rosebed.bench.table import format_table, number

SCHEMA_VERSION = 1
"""Of the JSON line; `result.schema.json` says what is in it."""

_FIGURES = ("case", "requests", "failed", "p50 ms", "p90 ms", "p99 ms", "max ms", "sequences/s", "tokens/s")
_COSTS = ("case", "device/step p50", "plumbing p50", "p99", "null p50", "null p99", "client µs/request", "busiest")


def as_text(report: BenchReport, environment: Environment) -> str:
    """The tables, what was measured on what, and the notes."""
    info = report.info
    device = ", ".join(word for word in (info.dtype, info.device) if word)
    parts = [
        f"{report.scenario}: {info.server}, {info.model}{f' ({device})' if device else ''}",
        f"on {'; '.join(environment.gpus) or environment.cpu}, {environment.num_cpus} CPUs",
        "",
        format_table(_FIGURES, [_figures_row(result) for result in report.results]),
        "",
        "Where the time went, ms:",
        format_table(_COSTS, [_costs_row(result) for result in report.results]),
        *_breakdowns(report),
    ]
    if report.scenario == "sweep":
        parts += ["", _sweep_line(report)]
    if report.notes:
        parts += ["", *(f"Note: {note}." for note in report.notes)]
    return "\n".join(parts)


def _figures_row(result: CaseResult) -> list[str]:
    figures = result.figures
    return [
        result.case.label,
        str(figures.num_requests),
        str(figures.num_failed),
        *_cells(figures.latency, "p50", "p90", "p99", "max"),
        number(figures.sequences_per_s, 1),
        number(figures.tokens_per_s, 0),
    ]


def _costs_row(result: CaseResult) -> list[str]:
    figures, client = result.figures, result.client
    return [
        result.case.label,
        *_cells(figures.device_per_step, "p50"),
        *_cells(figures.plumbing, "p50", "p99"),
        *_cells(client.null, "p50", "p99"),
        number(client.cpu_us_per_request or None, 0),
        f"{client.busiest:.0%}" if client.busiest else "–",
    ]


def _cells(summary: Summary | None, *names: str) -> list[str]:
    return [number(None if summary is None else getattr(summary, name)) for name in names]


def _breakdowns(report: BenchReport) -> list[str]:
    """Stages that the server tells of, and latency by lane: a table for each that there is."""
    parts: list[str] = []
    for title, field in (("As the server tells it, p50 (p99) ms:", "stages"), ("By lane, p50 (p99) ms:", "lanes")):
        by_case = [(result.case.label, getattr(result.figures, field)) for result in report.results]
        names = list(dict.fromkeys(name for _, summaries in by_case for name in summaries))
        if names:
            rows = [[label, *(_pair(summaries.get(name)) for name in names)] for label, summaries in by_case]
            parts += ["", title, format_table(["case", *names], rows)]
    return parts


def _pair(summary: Summary | None) -> str:
    return "–" if summary is None else f"{number(summary.p50)} ({number(summary.p99)})"


def _sweep_line(report: BenchReport) -> str:
    bound = f"p99 within {report.config.p99_bound_ms:g} ms"
    if report.highest_rate is None:
        return f"No rate tried kept {bound}: try a lower --rate."
    return f"Highest rate that kept {bound}: {report.highest_rate:g} requests/s."


def as_json(report: BenchReport, environment: Environment) -> str:
    """The whole report on one line."""
    value = {
        "rosebed_bench": SCHEMA_VERSION,
        "scenario": report.scenario,
        "target": asdict(report.info),
        "environment": asdict(environment),
        "settings": _settings(report.config),
        "cases": [_case(result) for result in report.results],
        "highest_rate": report.highest_rate,
        "notes": report.notes,
    }
    return json.dumps(_rounded(value), ensure_ascii=False)


def _settings(config: BenchConfig) -> dict[str, Any]:
    return {name: value for name, value in asdict(config).items() if name != "api_key"}


def _case(result: CaseResult) -> dict[str, Any]:
    case, figures = result.case, asdict(result.figures)
    lengths = {shape.lengths for shape in case.shapes}
    (one,) = lengths if len(lengths) == 1 else (None,)
    return {
        "label": case.label,
        "inputs_per_request": len(one) if one else None,
        "tokens_per_input": one[0] if one and len(set(one)) == 1 else None,
        "input": "text" if case.as_text else "ids",
        "clients": None if case.rate is not None else case.clients,
        "rate": case.rate,
        "processes": case.processes,
        **{_JSON_NAMES.get(name, name): value for name, value in figures.items()},
        "client": {
            "cpu_us_per_request": result.client.cpu_us_per_request,
            "busiest": result.client.busiest,
            "null_ms": None if result.client.null is None else asdict(result.client.null),
        },
        "failures": result.failures,
        "divergence": result.divergence,
    }


_JSON_NAMES = {
    "latency": "latency_ms",
    "send_lag": "send_lag_ms",
    "device_per_step": "device_per_step_ms",
    "plumbing": "plumbing_ms",
    "stages": "stages_ms",
    "lanes": "lanes_ms",
}
"""Fields of `Figures` whose unit is said by their docstring only."""


def _rounded(value: Any) -> Any:
    """`value` with numbers of six significant digits: what is beyond is noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
