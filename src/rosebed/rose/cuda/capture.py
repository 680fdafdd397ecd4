"""Which graphs are captured, and when that ends: within a bound on memory, the keys that matter most first.

Knows neither CUDA nor models: what captures and what measures is given.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from rosebed.core.counting import counted
from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.keys import GraphKey


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What warming up has cost."""

    keys: tuple[GraphKey, ...]
    seconds: float
    num_bytes: int
    """Device memory that the graphs' pools grew by."""

    def __str__(self) -> str:
        graphs = counted(len(self.keys), "graph")
        return f"captured {graphs} in {self.seconds:.1f} s, {self.num_bytes / 1e6:.0f} MB"


@dataclass(slots=True)
class StepCounts:
    """How steps have run, by key."""

    replayed: Counter[GraphKey] = field(default_factory=Counter[GraphKey])
    eager: Counter[GraphKey] = field(default_factory=Counter[GraphKey])
    """Kernel by kernel."""
    num_replayed: int = 0
    num_eager: int = 0
    """The totals of both, which another thread may read at any moment."""
    num_cold: int = 0
    """Steps, each the first of its key, that ran kernel by kernel."""
    num_captures: int = 0
    """Graphs captured on the way to a step."""
    num_idle_captures: int = 0
    """Graphs captured while there was nothing else to do."""
    tokens: int = 0
    padding_tokens: int = 0
    """Those by which keys were larger than their steps."""

    def count(self, key: GraphKey, num_tokens: int, *, replayed: bool) -> None:
        """One step of `num_tokens` ran with `key`."""
        if replayed:
            self.replayed[key] += 1
            self.num_replayed += 1
        else:
            self.eager[key] += 1
            self.num_eager += 1
        self.tokens += num_tokens
        self.padding_tokens += key.num_tokens - num_tokens

    def __str__(self) -> str:
        parts = [f"{counted(self.num_replayed, 'step')} replayed a graph, {self.num_eager} ran kernel by kernel"]
        for what, counts in (("replayed", self.replayed), ("kernel by kernel", self.eager)):
            if counts:
                keys = ", ".join(f"{key.num_tokens} {key.attention} × {count}" for key, count in counts.most_common(8))
                parts.append(f"most often {what}: {keys}")
        return "; ".join(parts)


def capture_within(
    needed: Collection[GraphKey],
    more: Iterable[GraphKey],
    capture: Callable[[GraphKey], None],
    used_bytes: Callable[[], int],
    max_bytes: int | None,
) -> CaptureReport:
    """Capture the keys in order, until they take `max_bytes`.

    ConfigError if some of `needed` are left then, since steps would pay for several times their tokens.
    """
    started = time.perf_counter()
    captured: list[GraphKey] = []
    for key in [*needed, *more]:
        if max_bytes is not None and used_bytes() >= max_bytes:
            if len(captured) < len(needed):
                raise ConfigError(
                    f"--graph-memory-mb {max_bytes >> 20}: {len(captured)} of the {len(needed)} graphs that every "
                    f"ladder needs take {used_bytes() / (1 << 20):.0f} already; give more, or --graphs lazy or off"
                )
            break
        capture(key)
        captured.append(key)
    return CaptureReport(tuple(captured), time.perf_counter() - started, used_bytes())
