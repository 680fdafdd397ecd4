"""What a server counts: plain numbers, written by the loop and read by whoever exposes them, without locks."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence as AnySequence

from rosebed.core.errors import RosebedError, mapping_of

SECONDS = tuple(10**exponent * step for exponent in range(-4, 2) for step in (1, 2, 5))
"""Bucket bounds of times."""
COUNTS = tuple(1 << exponent for exponent in range(15))
"""Bucket bounds of tokens and sequences."""


class Histogram:
    """Counts of observations up to each bound, and their sum."""

    def __init__(self, bounds: AnySequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Observations in each interval; the last is above all bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class TulipMetrics:
    """One server's counters."""

    def __init__(self) -> None:
        self.requests = 0
        """Requests admitted."""
        self.sequences = 0
        """Sequences finished, failed ones included."""
        self.tokens = 0
        """Tokens computed; there is no padding in them."""
        self.errors: Counter[str] = Counter()
        """Requests and single sequences that failed, by code."""
        self.step_seconds = Histogram(SECONDS)
        self.queue_seconds = Histogram(SECONDS)
        """From a request's arrival until its last sequence left the queue."""
        self.batch_tokens = Histogram(COUNTS)
        self.batch_sequences = Histogram(COUNTS)

    def count_error(self, error: RosebedError) -> None:
        self.errors[mapping_of(error).code] += 1
