"""Which steps are short, by the times of those before them."""

RISE, FALL = 0.2, 0.5
"""Weight of the newest time in its moving average: a slow one is more often an outlier than a fast one."""


class ShortSteps:
    """Moving averages of step time, by the power of two that a step's tokens do not pass."""

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._average_ns: dict[int, float] = {}

    def observe(self, num_tokens: int, elapsed_ns: int) -> None:
        """A step of so many tokens has taken so long."""
        bucket = (num_tokens - 1).bit_length()
        average_ns = self._average_ns.get(bucket, float(elapsed_ns))
        weight = RISE if elapsed_ns > average_ns else FALL
        self._average_ns[bucket] = average_ns + weight * (elapsed_ns - average_ns)

    def holds(self, num_tokens: int) -> bool:
        """Whether a step of so many should take no longer than the limit; not before one like it was seen."""
        return self._average_ns.get((num_tokens - 1).bit_length(), self._limit_ns + 1) <= self._limit_ns
