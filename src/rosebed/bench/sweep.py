"""The search for the highest rate that keeps a latency bound. Knows no target: it is given something that measures."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from rosebed.bench.statistics import Figures

REFINEMENTS = 3
"""Rates tried between the last that kept the bound and the first that did not."""
MAX_DOUBLINGS = 16


class Measured(Protocol):
    """One rate's outcome."""

    @property
    def figures(self) -> Figures: ...


Outcome = TypeVar("Outcome", bound=Measured)


def sweep(
    measure: Callable[[float], Outcome], *, first_rate: float, p99_bound_ms: float
) -> tuple[list[Outcome], float | None]:
    """Double the rate from `first_rate` until the bound breaks, then narrow it down by halves.

    All outcomes in the order they were measured, and the highest rate that held; None if none did.
    """
    outcomes: list[Outcome] = []

    def holds(rate: float) -> bool:
        outcomes.append(measure(rate))
        return keeps_bound(outcomes[-1].figures, p99_bound_ms)

    best, broken = None, first_rate
    for _ in range(MAX_DOUBLINGS):
        if not holds(broken):
            break
        best, broken = broken, 2 * broken
    if best is None or len(outcomes) == MAX_DOUBLINGS:
        return outcomes, best
    for _ in range(REFINEMENTS):
        middle = (best + broken) / 2
        if holds(middle):
            best = middle
        else:
            broken = middle
    return outcomes, best


def keeps_bound(figures: Figures, p99_bound_ms: float) -> bool:
    """Whether nothing failed and p99 is within the bound.

    A target that falls behind breaks it sooner or later, since latency counts from the intended time.
    """
    return not figures.num_failed and figures.latency is not None and figures.latency.p99 <= p99_bound_ms
