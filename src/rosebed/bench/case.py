"""One measurement to make: which requests, from how many clients, for how long."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rosebed.bench.requests import RequestShape

MAX_DISTINCT = 16
"""Different contents of requests of one shape, per client process …"""
MAX_PREPARED_TOKENS = 500_000
"""… as far as they have no more tokens than this in all: they are made and encoded ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measurement. Picklable: each client process makes its own share of the requests."""

    label: str
    shapes: tuple[RequestShape, ...]
    """Requests, in order; after the last the first again."""
    as_text: bool
    processes: int = 1
    """Client processes."""
    clients: int = 1
    """Clients of a closed loop, over all processes."""
    rate: float | None = None
    """Requests a second of an open loop, over all processes; None is a closed loop."""
    duration_s: float
    """Nothing is sent after this; what was sent is waited for."""
    warmup_s: float
    max_requests: int | None = None
    """Requests in all; none is sent after them."""
    seed: int = 0

    def own_shapes(self, process: int) -> tuple[RequestShape, ...]:
        """What client process number `process` makes requests of."""
        if self.rate is not None:
            return self.shapes[process :: self.processes]
        tokens = sum(shape.num_tokens for shape in self.shapes)
        distinct = max(1, min(MAX_DISTINCT, MAX_PREPARED_TOKENS // tokens))
        return self.shapes * distinct

    def own_clients(self, process: int) -> int:
        """Clients of a closed loop in that process."""
        return len(range(process, self.clients, self.processes))

    def own_max_requests(self, process: int) -> int | None:
        """Requests of a closed loop in that process."""
        return None if self.max_requests is None else len(range(process, self.max_requests, self.processes))

    def own_arrivals_ns(self, process: int) -> npt.NDArray[np.int64]:
        """When that process sends in an open loop: int64[n] ns after the start, ascending."""
        assert self.rate is not None
        return poisson_arrivals_ns(self)[process :: self.processes]


def poisson_arrivals_ns(case: Case) -> npt.NDArray[np.int64]:
    """When all processes together send: the same for every target, as the seed decides."""
    assert case.rate is not None
    random = np.random.default_rng([case.seed, 1])
    expected = case.rate * case.duration_s
    # Six standard deviations more than expected are enough; those after the end are cut off.
    gaps_s = random.exponential(1 / case.rate, int(expected + 6 * np.sqrt(expected) + 20))
    times_s = np.cumsum(gaps_s)
    times_s = times_s[times_s < case.duration_s][: case.max_requests]
    return (times_s * 1e9).astype(np.int64)
