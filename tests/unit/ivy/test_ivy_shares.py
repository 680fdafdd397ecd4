"""Splitting requests over replicas: every sequence once, in order, within limits, where it ends soonest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.types import Lane, Sequence
from rosebed.ivy.upstream.shares import (
    MAX_SHARE_TOKENS,
    MIN_SHARE_TOKENS,
    MessageLimits,
    Share,
    level,
    split,
)
from rosebed.proto.codec import request_message
from rosebed.proto.rosebed_pb2 import StreamRequest
from rosebed.proto.sizes import message_bytes

LENGTHS = st.lists(st.integers(1, 8192), min_size=1, max_size=200)
LIMITS = st.builds(MessageLimits, sequences=st.integers(1, 64), num_bytes=st.integers(1024, 1 << 22))
LOADS = st.lists(st.integers(0, 100_000), min_size=1, max_size=5)


@given(LENGTHS, LOADS, LIMITS)
def test_shares_cover_every_sequence_once_and_in_order(
    lengths: list[int], outstanding: list[int], limits: MessageLimits
) -> None:
    shares = split(lengths, outstanding, limits)
    covered = [index for share in shares for index in range(share.start, share.stop)]
    assert covered == list(range(len(lengths)))
    assert all(0 <= share.replica < len(outstanding) for share in shares)


@given(LENGTHS, LOADS, LIMITS)
def test_no_share_is_over_a_limit_unless_it_is_one_sequence(
    lengths: list[int], outstanding: list[int], limits: MessageLimits
) -> None:
    for share in split(lengths, outstanding, limits):
        assert 1 <= share.stop - share.start <= limits.sequences
        num_sequences, num_tokens = share.stop - share.start, sum(lengths[share.start : share.stop])
        is_small = num_tokens <= MAX_SHARE_TOKENS and message_bytes(num_tokens, num_sequences) <= limits.num_bytes
        assert num_sequences == 1 or is_small


@given(st.integers(1, 1_000_000), LOADS)
def test_levels_sum_up_and_are_worth_a_replica(total: int, outstanding: list[int]) -> None:
    loads = level(total, outstanding)
    assert sum(loads) == total
    used = [load for load in loads if load]
    assert len(used) == 1 or min(used) >= MIN_SHARE_TOKENS


@given(st.integers(1, 1_000_000), LOADS)
def test_used_replicas_come_out_level(total: int, outstanding: list[int]) -> None:
    heights = [had + got for had, got in zip(outstanding, level(total, outstanding), strict=True) if got]
    assert max(heights) - min(heights) < len(heights)


@given(st.integers(1, 1_000_000), LOADS)
def test_an_unused_replica_would_have_got_too_little(total: int, outstanding: list[int]) -> None:
    loads = level(total, outstanding)
    highest_used = max(had + got for had, got in zip(outstanding, loads, strict=True) if got)
    for had, got in zip(outstanding, loads, strict=True):
        assert got or had > highest_used - MIN_SHARE_TOKENS * (len(outstanding) + 1)


def test_small_request_goes_to_the_least_loaded() -> None:
    assert split([100, 200], [900, 7, 8], MessageLimits(sequences=64)) == [Share(1, 0, 2)]


def test_small_request_of_many_sequences_is_cut_where_a_message_ends() -> None:
    assert split([1] * 5, [0, 0], MessageLimits(sequences=2)) == [Share(0, 0, 2), Share(0, 2, 4), Share(0, 4, 5)]


def test_large_request_on_idle_replicas_is_halved() -> None:
    assert split([512] * 8, [0, 0], MessageLimits(sequences=64)) == [Share(0, 0, 4), Share(1, 4, 8)]


def test_large_request_fills_up_the_idle_replica() -> None:
    assert split([512] * 8, [1024, 0], MessageLimits(sequences=64)) == [Share(0, 0, 3), Share(1, 3, 8)]
    assert split([512] * 8, [5000, 0], MessageLimits(sequences=64)) == [Share(1, 0, 8)]


def test_huge_request_is_cut_by_tokens() -> None:
    shares = split([8192] * 100, [0], MessageLimits(sequences=2048))
    assert [share.stop - share.start for share in shares] == [32, 32, 32, 4]


def test_small_request_is_cut_where_a_message_would_be_too_large() -> None:
    limits = MessageLimits(sequences=64, num_bytes=message_bytes(200, 2))
    assert split([100] * 3, [0], limits) == [Share(0, 0, 2), Share(0, 2, 3)]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=50))
def test_a_message_is_no_larger_than_was_reckoned(lengths: list[int]) -> None:
    sequences = [
        Sequence(
            token_ids=np.full(n, 1 << 30, np.int32),
            token_type_ids=np.ones(n, np.int32),
            pool_spans=np.array([[0, max(1, n - 1)]], np.int32),
            dimensions=1 << 20,
            normalize=True,
        )
        for n in lengths
    ]
    message = StreamRequest(embed=request_message(sequences, request_id=1 << 60, lane=Lane.BULK))
    assert message.ByteSize() <= message_bytes(sum(lengths), len(lengths))
