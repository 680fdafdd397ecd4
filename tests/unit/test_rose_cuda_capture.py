"""Which graphs a bound on memory leaves. No torch."""

from itertools import pairwise

import pytest

from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane
from rosebed.rose.cuda.capture import StepCounts, capture_within
from rosebed.rose.cuda.keys import (
    MAX_GRAPHS,
    GraphKey,
    bulk_ladder,
    capture_order,
    in_slot,
    ladder,
    order_of_slots,
    rungs_of,
    smallest_key,
)

KEYS = [GraphKey(tokens, "triton") for tokens in ladder(8192)] + [
    GraphKey(tokens, "fa3") for tokens in ladder(8192) if tokens >= 1024
]
BULK = in_slot(
    [GraphKey(tokens, "triton") for tokens in bulk_ladder(ladder(8192))]
    + [GraphKey(tokens, "fa3") for tokens in bulk_ladder(ladder(8192)) if tokens >= 1024],
    Lane.BULK,
)
COARSE, BETWEEN = capture_order(KEYS)


class Device:
    """Each capture takes one MB."""

    def __init__(self) -> None:
        self.captured: list[GraphKey] = []

    def used(self) -> int:
        return len(self.captured) << 20


def test_coarse_keys_come_first_and_each_is_half_of_the_one_above() -> None:
    assert sorted([*COARSE, *BETWEEN], key=repr) == sorted(KEYS, key=repr)
    rungs = rungs_of(COARSE)
    assert rungs["triton"] == (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    assert rungs["fa3"] == (1024, 2048, 4096, 8192)
    assert all(one.num_tokens >= other.num_tokens for one, other in pairwise(COARSE))
    assert all(one.num_tokens >= other.num_tokens for one, other in pairwise(BETWEEN))


def test_without_a_bound_all_are_captured_and_the_cost_is_reported() -> None:
    device = Device()
    report = capture_within(COARSE, BETWEEN, device.captured.append, device.used, None)
    assert report.keys == tuple(device.captured)
    assert set(report.keys) == set(KEYS)
    assert str(report).startswith(f"captured {len(KEYS)} graphs in 0.0 s, ")
    assert report.num_bytes == len(KEYS) << 20


def test_within_a_bound_every_batch_still_finds_a_graph() -> None:
    device = Device()
    report = capture_within(COARSE, BETWEEN, device.captured.append, device.used, 20 << 20)
    assert len(report.keys) == 20
    rungs = rungs_of(report.keys)
    for tokens in range(1, 8193):
        key = smallest_key(rungs["triton"], tokens, "triton")
        assert key is not None
        assert key in report.keys
        assert key.num_tokens <= max(16, 2 * tokens)


def test_too_small_a_bound_is_refused() -> None:
    device = Device()
    with pytest.raises(ConfigError, match="--graph-memory-mb 5: 5 of the 14 graphs that every ladder needs take 5"):
        capture_within(COARSE, BETWEEN, device.captured.append, device.used, 5 << 20)


def test_the_bulk_ladder_has_few_rungs_and_pads_full_batches_little() -> None:
    rungs = bulk_ladder(ladder(8192))
    assert rungs == (16, 32, 64, 128, 256, 512, *range(1024, 8193, 512))
    assert bulk_ladder(ladder(1100)) == (16, 32, 64, 128, 256, 512, 1024, 1280)
    for tokens in range(2049, 8193):
        key = smallest_key(rungs, tokens, "triton", slot=Lane.BULK)
        assert key is not None
        assert key.slot is Lane.BULK
        assert key.num_tokens <= 1.25 * tokens
        assert tokens <= 4096 or key.num_tokens <= 1.125 * tokens


def test_bulk_graphs_come_before_those_that_only_refine() -> None:
    needed, more = order_of_slots(KEYS, BULK)
    assert needed == COARSE
    assert more[len(BULK) :] == BETWEEN
    assert set(more[: len(BULK)]) == set(BULK)
    assert all(one.num_tokens >= other.num_tokens for one, other in pairwise(more[: len(BULK)]))
    assert order_of_slots(KEYS, []) == (COARSE, BETWEEN)


def test_many_backends_leave_the_bulk_lane_fewer_graphs_largest_and_halves_first() -> None:
    online = [GraphKey(tokens, name) for name in ("a", "b") for tokens in ladder(8192)] + [
        GraphKey(tokens, "c") for tokens in ladder(8192) if tokens >= 2048
    ]
    needed, more = order_of_slots(online, BULK)
    assert len(needed) + len(more) == MAX_GRAPHS
    bulk = [key for key in more if key.slot is Lane.BULK]
    assert rungs_of(bulk)["triton"][-3:] == (2048, 4096, 8192)


def test_counts_say_which_keys_were_met() -> None:
    counts = StepCounts()
    for _ in range(7):
        counts.count(GraphKey(128, "triton"), 100, replayed=True)
    for _ in range(2):
        counts.count(GraphKey(512, "fa3"), 512, replayed=True)
    assert (counts.tokens, counts.padding_tokens) == (7 * 100 + 2 * 512, 7 * 28)
    assert str(counts) == (
        "9 steps replayed a graph, 0 ran kernel by kernel; most often replayed: 128 triton × 7, 512 fa3 × 2"
    )
