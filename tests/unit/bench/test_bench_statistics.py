"""Percentiles and figures: known samples, exact results."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.bench.samples import Recording, Sample
from rosebed.bench.statistics import Summary, figures_of, percentile
from rosebed.bench.targets.base import Stages
from rosebed.core.types import Lane

MS = 1_000_000


def sample(
    intended_ms: int,
    done_ms: int,
    *,
    sent_ms: int | None = None,
    lane: Lane = Lane.ONLINE,
    failed: bool = False,
    stages: Stages | None = None,
) -> Sample:
    sent_ns = (intended_ms if sent_ms is None else sent_ms) * MS
    return Sample(intended_ms * MS, sent_ns, done_ms * MS, 2, 50, lane, failed, stages or Stages())


def recording(*samples: Sample, **settings: object) -> Recording:
    return Recording.of(samples, Counter[str](), **settings)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(100, 50, 50), (100, 90, 90), (100, 99, 99), (100, 100, 100), (101, 50, 51), (101, 99, 100), (10, 99, 10),
     (1, 50, 1), (1, 99, 1), (2, 50, 1), (2, 90, 2), (1000, 99, 990), (200, 99, 198)],
)  # fmt: skip
def test_percentile_is_the_nearest_rank(count: int, share: float, expected: float) -> None:
    assert percentile(np.arange(1, count + 1, dtype=np.float64), share) == expected


@given(st.lists(st.floats(0, 1e9), min_size=1), st.integers(1, 100))
def test_a_percentile_was_observed_and_covers_its_share(values: list[float], share: int) -> None:
    ordered = np.sort(np.array(values))
    found = percentile(ordered, share)
    assert found in values
    assert (ordered <= found).sum() * 100 >= share * len(values)
    assert (ordered < found).sum() * 100 < share * len(values)


def test_summary_is_in_ms() -> None:
    summary = Summary.of_ns(np.arange(1, 101)[::-1] * MS // 2)
    assert summary == Summary(p50=25.0, p90=45.0, p99=49.5, max=50.0, mean=25.25)
    assert Summary.of_ns(np.array([], np.int64)) is None


def test_merging_keeps_every_sample() -> None:
    fast = recording(*(sample(0, 1) for _ in range(99)), cpu_ns=5, busiest=0.25)
    slow = Recording.of([sample(0, 1001)], Counter({"full": 2}), cpu_ns=7, busiest=0.5)
    merged = Recording.merged([fast, slow])
    figures = figures_of(merged)
    assert figures.latency is not None
    # Averages of the two processes' percentiles would be 501 throughout.
    assert (figures.latency.p50, figures.latency.p99, figures.latency.max) == (1.0, 1.0, 1001.0)
    assert (merged.cpu_ns, merged.busiest, merged.failures) == (12, 0.5, {"full": 2})


@given(st.lists(st.lists(st.integers(0, 1000), min_size=1), min_size=1, max_size=5))
def test_merging_is_the_same_as_one_process(latencies: list[list[int]]) -> None:
    parts = [recording(*(sample(0, latency) for latency in part)) for part in latencies]
    whole = recording(*(sample(0, latency) for part in latencies for latency in part))
    assert figures_of(Recording.merged(parts)) == figures_of(whole)


def test_throughput_counts_what_succeeded_until_the_last_answer() -> None:
    figures = figures_of(recording(sample(1000, 1500), sample(1500, 3000), sample(2000, 3000, failed=True)))
    assert (figures.num_requests, figures.num_failed, figures.seconds) == (2, 1, 2.0)
    assert (figures.requests_per_s, figures.sequences_per_s, figures.tokens_per_s) == (1.0, 2.0, 50.0)
    assert figures.latency is not None
    assert (figures.latency.p50, figures.latency.max) == (500.0, 1500.0)


def test_nothing_succeeded() -> None:
    figures = figures_of(recording(sample(0, 10, failed=True)))
    assert (figures.num_requests, figures.num_failed, figures.latency, figures.tokens_per_s) == (0, 1, None, 0.0)
    assert figures_of(recording()).seconds == 0.0


def test_latency_counts_from_the_intended_time_and_plumbing_from_the_sending() -> None:
    stages = Stages(queue_ns=2 * MS, compute_ns=12 * MS, total_ns=15 * MS, device_ns=10 * MS, num_steps=4)
    figures = figures_of(recording(sample(0, 25, sent_ms=5, stages=stages)))
    summaries = {
        "latency": figures.latency,
        "send_lag": figures.send_lag,
        "device": figures.device_per_step,
        "plumbing": figures.plumbing,
        **figures.stages,
    }
    assert {name: summary.p50 for name, summary in summaries.items() if summary is not None} == {
        "latency": 25.0,
        "send_lag": 5.0,
        "device": 2.5,
        "plumbing": 10.0,
        "queue": 2.0,
        "compute": 12.0,
        "reply": 1.0,
        "outside": 5.0,
    }


def test_what_a_server_does_not_tell_is_left_out() -> None:
    figures = figures_of(recording(sample(0, 25)))
    assert (figures.device_per_step, figures.plumbing, figures.stages, figures.lanes) == (None, None, {}, {})


def test_lanes_are_told_apart_where_there_are_two() -> None:
    figures = figures_of(recording(sample(0, 10), sample(0, 30), sample(0, 90, lane=Lane.BULK)))
    assert {name: summary.max for name, summary in figures.lanes.items()} == {"online": 30.0, "bulk": 90.0}
