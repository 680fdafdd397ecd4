"""The search for the highest rate, over servers whose capacity is known."""

from dataclasses import dataclass

from bench_reports import case, result

from rosebed.bench.run import CaseResult
from rosebed.bench.statistics import Figures
from rosebed.bench.sweep import MAX_DOUBLINGS, keeps_bound, sweep


@dataclass(frozen=True)
class Outcome:
    rate: float
    figures: Figures


def run(capacity: float, first_rate: float) -> tuple[list[float], float | None]:
    """Rates tried, and the best, of a server whose p99 is 10 ms up to its capacity and 1000 above."""

    def measure(rate: float) -> Outcome:
        return Outcome(rate, result([10 if rate <= capacity else 1000], case()).figures)

    outcomes, best = sweep(measure, first_rate=first_rate, p99_bound_ms=100)
    return [outcome.rate for outcome in outcomes], best


def test_rates_double_and_then_close_in() -> None:
    assert run(capacity=350, first_rate=50) == ([50, 100, 200, 400, 300, 350, 375], 350)
    assert run(capacity=399, first_rate=50) == ([50, 100, 200, 400, 300, 350, 375], 375)


def test_a_first_rate_too_high_is_the_only_one() -> None:
    assert run(capacity=10, first_rate=50) == ([50], None)


def test_a_sweep_ends_however_fast_the_server() -> None:
    rates, best = run(capacity=float("inf"), first_rate=1)
    assert (len(rates), best) == (MAX_DOUBLINGS, 2 ** (MAX_DOUBLINGS - 1))


def keeps(of: CaseResult) -> bool:
    return keeps_bound(of.figures, 100)


def test_a_rate_with_failures_does_not_hold() -> None:
    assert keeps(result([10] * 99 + [500], case()))  # p99 is 10
    assert keeps(result([100], case()))
    assert not keeps(result([101], case()))
    assert not keeps(result([10] * 99, case(), failures=1))
    assert not keeps(result([], case()))
