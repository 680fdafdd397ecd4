"""`rosebed bench`: load for a server, and what it makes of it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rosebed.bench.config import SCENARIOS, BenchConfig
from rosebed.cli.options import SectionedCommand, SectionedOption, config_options
from rosebed.cli.progress import ProgressLine
from rosebed.core.model_spec import ModelOverrides
from rosebed.rose.config import SERVERS_ONLY, EngineConfig

_SECTION = "Measurement"


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers, separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} should be whole numbers, separated by commas", param, ctx)


def _numbers(flag: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag, cls=SectionedOption, section=_SECTION, type=Numbers(), default=(), help=text)


@click.command(cls=SectionedCommand)
@click.argument("scenario", type=click.Choice(list(SCENARIOS)))
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture of the figures there.")
@_numbers("--tokens", "Tokens of one input, instead of the scenario's: 128,512.")
@_numbers("--inputs", "Inputs of one request, instead of the scenario's.")
@_numbers("--clients", "Clients at once, instead of the scenario's, where each sends when its last answer has come.")
@config_options(BenchConfig, "bench", section=_SECTION, exclude=("tokens", "inputs", "clients", "engine", "overrides"))
@config_options(ModelOverrides, "overrides", section="Model in process")
@config_options(EngineConfig, "engine", section="Engine in process", exclude=SERVERS_ONLY)
def command(
    scenario: str,
    plot: Path | None,
    bench: Callable[..., BenchConfig],
    overrides: Callable[[], ModelOverrides],
    engine: Callable[[], EngineConfig],
    **numbers: tuple[int, ...],
) -> None:
    """Measure a server, Rosebed or another, or a model in this process.

    \b
    Scenarios:
      latency      one sequence of token ids a request, one after the other: 128, 512, 4096 tokens
      scoring      one request of 5, 25, 50 sequences of 512 token ids, one after the other
      throughput   requests of 100 sequences of 512, 1024, 4096 token ids, 4 client processes
      concurrency  texts of 512 tokens, from 1, 2, 4, 8, 16, 64 clients
      open         requests at random times at --rate, of mixed --lengths, in two lanes
      sweep        the same at rising rates, until p99 passes --p99-bound-ms

    Prints tables, then the whole report as one line of JSON. Exits with 1 if a request failed; those of a sweep may.

    \b
    Examples:
      rosebed bench latency --target grpc://127.0.0.1:50051
      rosebed bench concurrency --target http://127.0.0.1:8080 --plot concurrency.png
      rosebed bench throughput --target engine:./my-model --device cuda --tokens 512
    """
    config = bench(**numbers, engine=engine(), overrides=overrides())
    from rosebed.bench.environment import read_environment
    from rosebed.bench.plot import check_plot_path, save_plot
    from rosebed.bench.report import as_json, as_text
    from rosebed.bench.run import run_bench

    if plot is not None:
        check_plot_path(plot)
    with ProgressLine() as progress:
        report = run_bench(scenario, config, progress.show)
    environment = read_environment(sys.argv[1:])
    click.echo(as_text(report, environment))
    if plot is not None:
        save_plot(report, plot)
    click.echo(as_json(report, environment))
    has_failures = any(result.figures.num_failed for result in report.results)
    sys.exit(1 if has_failures and scenario != "sweep" else 0)
