"""From samples to figures. Percentiles are observed values, never interpolated."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rosebed.bench.samples import Recording, SampleArray
from rosebed.core.types import Lane

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A distribution of times, in ms."""

    p50: float
    p90: float
    p99: float
    max: float
    mean: float

    @classmethod
    def of_ns(cls, times_ns: Int64Array) -> "Summary | None":
        """Of int64[n] nanoseconds; None for no times."""
        if not len(times_ns):
            return None
        ordered = np.sort(times_ns) / 1e6
        p50, p90, p99 = (percentile(ordered, share) for share in (50, 90, 99))
        return cls(p50=p50, p90=p90, p99=p99, max=float(ordered[-1]), mean=float(ordered.mean()))


def percentile(ordered: npt.NDArray[np.float64], share: float) -> float:
    """The smallest of `ordered` (ascending, not empty) that at least `share` percent do not exceed (nearest rank)."""
    return float(ordered[max(0, int(np.ceil(share * len(ordered) / 100 - 1e-9)) - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one case came to; a `Summary` is None where there is nothing to summarise."""

    num_requests: int
    """Requests that succeeded."""
    num_failed: int
    seconds: float
    """From the first intended time to the last answer."""
    sequences_per_s: float
    tokens_per_s: float
    requests_per_s: float
    latency: Summary | None
    """From the intended time to the last byte of the answer."""
    send_lag: Summary | None
    """From the intended time until sending began: waiting for a connection, or the client being late."""
    device_per_step: Summary | None
    plumbing: Summary | None
    """A request's time from sending to its answer, less the device's time on its steps."""
    stages: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """Where the server says that the time went, by name; `outside` is the wire and the client."""
    lanes: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """Latency by lane, where both were used."""


def figures_of(recording: Recording) -> Figures:
    """The figures of all `recording` holds. Requests that failed count as such and in nothing else."""
    samples = recording.succeeded
    latency_ns = latencies_ns(samples)
    seconds = _seconds(recording.samples)
    per_second = 1 / seconds if seconds else 0.0
    return Figures(
        num_requests=len(samples),
        num_failed=len(recording.samples) - len(samples),
        seconds=seconds,
        sequences_per_s=int(samples["num_sequences"].sum()) * per_second,
        tokens_per_s=int(samples["num_tokens"].sum()) * per_second,
        requests_per_s=len(samples) * per_second,
        latency=Summary.of_ns(latency_ns),
        send_lag=Summary.of_ns(samples["sent_ns"] - samples["intended_ns"]),
        device_per_step=_device_per_step(samples),
        plumbing=_plumbing(samples),
        stages=_stages(samples),
        lanes=_lanes(samples),
    )


def latencies_ns(samples: SampleArray) -> Int64Array:
    """int64[n]: from the intended time to the last byte."""
    return samples["done_ns"] - samples["intended_ns"]


def _seconds(samples: SampleArray) -> float:
    if not len(samples):
        return 0.0
    return float(samples["done_ns"].max() - samples["intended_ns"].min()) / 1e9


def _device_per_step(samples: SampleArray) -> Summary | None:
    measured = samples[(samples["device_ns"] > 0) & (samples["num_steps"] > 0)]
    return Summary.of_ns(measured["device_ns"] // measured["num_steps"])


def _plumbing(samples: SampleArray) -> Summary | None:
    measured = samples[samples["device_ns"] > 0]
    return Summary.of_ns(measured["done_ns"] - measured["sent_ns"] - measured["device_ns"])


def _stages(samples: SampleArray) -> dict[str, Summary]:
    told = samples[samples["total_ns"] > 0]
    inside = told["tokenize_ns"] + told["queue_ns"] + told["compute_ns"]
    times = {
        "tokenize": told["tokenize_ns"],
        "queue": told["queue_ns"],
        "compute": told["compute_ns"],
        "reply": told["total_ns"] - inside,
        "outside": told["done_ns"] - told["sent_ns"] - told["total_ns"],
    }
    summaries = {name: Summary.of_ns(values) for name, values in times.items() if values.any()}
    return {name: summary for name, summary in summaries.items() if summary is not None}


def _lanes(samples: SampleArray) -> dict[str, Summary]:
    summaries = {lane.name.lower(): Summary.of_ns(latencies_ns(samples[samples["lane"] == lane])) for lane in Lane}
    used = {name: summary for name, summary in summaries.items() if summary is not None}
    return used if len(used) > 1 else {}
