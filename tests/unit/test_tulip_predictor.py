"""What is learnt from steps, and what is made of it."""

import pytest

from rosebed.tulip.predictor import LEAD_NS, StepTimes, token_bucket


@pytest.mark.parametrize(
    ("num_tokens", "bucket"),
    [(1, 64), (64, 64), (65, 128), (1024, 1024), (1025, 1280), (8192, 8192), (8193, 16384), (40_000, 65_536)],
)
def test_buckets(num_tokens: int, bucket: int) -> None:
    assert token_bucket(num_tokens) == bucket


def test_nothing_is_known_before_the_first_step() -> None:
    times = StepTimes()
    assert times.predict_ns(100) == 0
    assert times.tokens_per_s == 0
    assert times.lead_ns == LEAD_NS


def test_averages_fall_faster_than_they_rise() -> None:
    times = StepTimes()
    times.observe(64, 1000)
    times.observe(64, 2000)
    assert times.predict_ns(10) == pytest.approx(1100)
    times.observe(64, 100)
    assert times.predict_ns(10) == pytest.approx(600)


def test_an_unseen_bucket_borrows_from_its_neighbours() -> None:
    times = StepTimes()
    times.observe(512, 5000)
    times.observe(128, 2000)
    assert times.predict_ns(64) == 2000
    assert times.predict_ns(256) == 5000
    assert times.predict_ns(1024) == 10_000
    assert dict(times.table) == {512: 5000, 128: 2000}


def test_the_lead_includes_the_time_to_enqueue() -> None:
    times = StepTimes()
    times.observe_enqueue(40_000)
    assert times.lead_ns == LEAD_NS + 40_000


def test_throughput_follows_the_latest_steps() -> None:
    times = StepTimes()
    times.observe(1000, 1_000_000)
    assert times.tokens_per_s == pytest.approx(1e6)
    times.observe(1000, 500_000)
    assert times.tokens_per_s == pytest.approx(1.5e6)
    times.observe(10, 0)
    assert times.tokens_per_s == pytest.approx(1.5e6)
