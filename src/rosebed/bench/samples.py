"""What is kept of each request: one row of times. Rows of several client processes are put together as they are."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rosebed.bench.targets.base import Stages

SampleArray = npt.NDArray[np.void]
"""Structured array of `SAMPLE`."""

SAMPLE = np.dtype(
    [
        ("intended_ns", np.int64),
        ("sent_ns", np.int64),
        ("done_ns", np.int64),
        ("num_sequences", np.int64),
        ("num_tokens", np.int64),
        ("lane", np.int8),
        ("failed", np.bool_),
        *((name, np.int64) for name in Stages._fields),
    ]
)


class Sample(NamedTuple):
    """One request. Times are those of a clock that all processes of the machine share."""

    intended_ns: int
    """When it should have been sent: latency counts from here."""
    sent_ns: int
    """When sending began; later than intended where a connection was waited for."""
    done_ns: int
    """When the last byte of the answer had come, or the failure."""
    num_sequences: int
    num_tokens: int
    lane: int
    failed: bool
    stages: Stages


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """What one client process, or all of them, saw while measuring."""

    samples: SampleArray
    failures: Counter[str] = field(default_factory=Counter[str])
    """What failed requests said, and how often."""
    cpu_ns: int = 0
    """Processor time of the client processes."""
    busiest: float = 0.0
    """Share of one core that the busiest client process used."""

    @classmethod
    def of(
        cls, samples: Iterable[Sample], failures: Counter[str], *, cpu_ns: int = 0, busiest: float = 0.0
    ) -> "Recording":
        """From rows as they were collected."""
        rows = [(*sample[:-1], *sample.stages) for sample in samples]
        return cls(samples=np.array(rows, SAMPLE), failures=failures, cpu_ns=cpu_ns, busiest=busiest)

    @classmethod
    def merged(cls, recordings: Sequence["Recording"]) -> "Recording":
        """Every row of all of them: nothing is averaged."""
        return cls(
            samples=np.concatenate([recording.samples for recording in recordings]),
            failures=sum((recording.failures for recording in recordings), Counter[str]()),
            cpu_ns=sum(recording.cpu_ns for recording in recordings),
            busiest=max(recording.busiest for recording in recordings),
        )

    @property
    def succeeded(self) -> SampleArray:
        """The rows of requests that did not fail."""
        return self.samples[~self.samples["failed"]]
