"""How long a step will take, learnt from the steps before it."""

from bisect import bisect_left
from collections.abc import Mapping

RISE, FALL = 0.1, 0.5
"""Weight of the newest time in its moving average. Slow outliers are common (the first step of a shape compiles, the
host was busy), fast ones are not, so the averages fall faster than they rise."""
LEAD_NS = 150_000
"""Time kept in hand when a batch is closed ahead of the running step's end, on top of enqueueing it."""


def token_bucket(num_tokens: int) -> int:
    """Steps of up to this many tokens share an average: 64s to 1024, 256s to 8192, then doublings."""
    if num_tokens <= 1024:
        return -(-num_tokens // 64) * 64
    if num_tokens <= 8192:
        return -(-num_tokens // 256) * 256
    return 1 << (num_tokens - 1).bit_length()


class StepTimes:
    """Moving averages of step time by token bucket, of the time to enqueue a step, and of tokens a second."""

    def __init__(self) -> None:
        self._step_ns: dict[int, float] = {}
        self._buckets: list[int] = []
        self._enqueue_ns = 0.0
        self.tokens_per_s = 0.0
        """Throughput while busy; 0 before the first step."""

    @property
    def table(self) -> Mapping[int, float]:
        """Nanoseconds by token bucket."""
        return self._step_ns

    @property
    def lead_ns(self) -> float:
        """How long before the running step ends the next batch is closed."""
        return self._enqueue_ns + LEAD_NS

    def observe_enqueue(self, elapsed_ns: int) -> None:
        """`Engine.step` took this long to return."""
        self._enqueue_ns = _averaged(self._enqueue_ns, elapsed_ns)

    def observe(self, num_tokens: int, elapsed_ns: int) -> None:
        """A step of `num_tokens` kept the device busy for this long."""
        bucket = token_bucket(num_tokens)
        if bucket not in self._step_ns:
            self._buckets.insert(bisect_left(self._buckets, bucket), bucket)
        self._step_ns[bucket] = _averaged(self._step_ns.get(bucket, 0.0), elapsed_ns)
        if elapsed_ns > 0:
            self.tokens_per_s += (FALL if self.tokens_per_s else 1) * (
                num_tokens * 1e9 / elapsed_ns - self.tokens_per_s
            )

    def predict_ns(self, num_tokens: int) -> float:
        """Expected time of a step; 0 before anything was observed.

        A bucket not seen yet takes the nearest larger one's time, or the largest one's in proportion to tokens.
        """
        bucket = token_bucket(num_tokens)
        if bucket in self._step_ns:
            return self._step_ns[bucket]
        if not self._buckets:
            return 0.0
        at = bisect_left(self._buckets, bucket)
        if at < len(self._buckets):
            return self._step_ns[self._buckets[at]]
        largest = self._buckets[-1]
        return self._step_ns[largest] * bucket / largest


def _averaged(average: float, newest: float) -> float:
    if average == 0.0:
        return newest
    return average + (RISE if newest > average else FALL) * (newest - average)
