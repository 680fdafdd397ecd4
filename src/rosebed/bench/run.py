"""A whole run: from a config to a report. Prints nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rosebed.bench.case import Case
from rosebed.bench.config import BenchConfig
from rosebed.bench.crew import CaseRun, Crew
from rosebed.bench.notes import notes_on
from rosebed.bench.scenarios import Planner
from rosebed.bench.statistics import Figures, Summary, figures_of, latencies_ns
from rosebed.bench.sweep import sweep
from rosebed.bench.targets.address import parse_target
from rosebed.bench.targets.base import TargetInfo, TargetSettings

Watch = Callable[[str, int], None]
"""Is told what is being done, and how many sequences have been answered so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCost:
    """What the load generator itself took."""

    cpu_us_per_request: float
    """Processor time of all client processes; 0 where the model shares theirs."""
    busiest: float
    """Share of one core that the busiest client process used; near 1, the client is what was measured."""
    null: Summary | None
    """Latencies of one client where the server does nothing but repeat an answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaseResult:
    """One case and what it came to."""

    case: Case
    figures: Figures
    client: ClientCost
    failures: dict[str, int]
    """What failed requests said, and how often."""
    divergence: float
    """Cosine distance between two answers to the same request, seen while warming up."""
    latencies_ms: npt.NDArray[np.float64]
    """float64[num_requests], ascending."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchReport:
    """One run."""

    scenario: str
    config: BenchConfig
    info: TargetInfo
    results: list[CaseResult]
    notes: list[str]
    """What a reader of the figures should know."""
    highest_rate: float | None = None
    """Of a sweep: the highest rate tried that kept the bound."""


def run_bench(scenario: str, config: BenchConfig, watch: Watch = lambda _activity, _count: None) -> BenchReport:
    """Measure. A `RosebedError` says why the target cannot be measured; single failed requests are part of a report."""
    address = parse_target(config.target)
    settings = TargetSettings(
        address=address,
        model_name=config.model_name,
        api_key=config.api_key,
        timeout_s=config.timeout,
        engine=config.engine,
        overrides=config.overrides,
    )
    activity = f"opening {config.target}"
    with Crew(settings, on_progress=lambda count: watch(activity, count)) as crew:
        planner = Planner(config, crew.describe())

        def measure(case: Case) -> CaseResult:
            nonlocal activity
            activity = case.label
            run = crew.run(case, _vocab_size(config, planner.info))
            figures = figures_of(run.recording)
            planner.notes.extend(note for note in notes_on(run, figures) if note not in planner.notes)
            return _result(run, figures)

        highest_rate = None
        if scenario == "sweep":
            results, highest_rate = sweep(
                lambda rate: measure(planner.open_at(rate)),
                first_rate=config.rate,
                p99_bound_ms=config.p99_bound_ms,
            )
        else:
            results = [measure(case) for case in planner.cases(scenario)]
    return BenchReport(
        scenario=scenario,
        config=config,
        info=planner.info,
        results=results,
        notes=planner.notes,
        highest_rate=highest_rate,
    )


def _vocab_size(config: BenchConfig, info: TargetInfo) -> int | None:
    sizes = [size for size in (config.vocab_size, info.vocab_size) if size is not None]
    return min(sizes) if sizes else None


def _result(run: CaseRun, figures: Figures) -> CaseResult:
    return CaseResult(
        case=run.case,
        figures=figures,
        client=ClientCost(
            cpu_us_per_request=run.recording.cpu_ns / max(1, len(run.recording.samples)) / 1e3,
            busiest=run.recording.busiest,
            null=run.null,
        ),
        failures=dict(run.recording.failures),
        divergence=run.divergence,
        latencies_ms=np.sort(latencies_ns(run.recording.succeeded)) / 1e6,
    )
