"""Splitting requests over replicas: every sequence once, in order, within limits, where it ends soonest."""

from hypothesis import given
from hypothesis import strategies as st

from rosebed.ivy.upstream.shares import MAX_SHARE_TOKENS, MIN_SHARE_TOKENS, Share, level, split

LENGTHS = st.lists(st.integers(1, 8192), min_size=1, max_size=200)
LOADS = st.lists(st.integers(0, 100_000), min_size=1, max_size=5)


@given(LENGTHS, LOADS, st.integers(1, 64))
def test_shares_cover_every_sequence_once_and_in_order(
    lengths: list[int], outstanding: list[int], max_sequences: int
) -> None:
    shares = split(lengths, outstanding, max_sequences)
    covered = [index for share in shares for index in range(share.start, share.stop)]
    assert covered == list(range(len(lengths)))
    assert all(0 <= share.replica < len(outstanding) for share in shares)


@given(LENGTHS, LOADS, st.integers(1, 64))
def test_no_share_is_over_a_limit_unless_it_is_one_sequence(
    lengths: list[int], outstanding: list[int], max_sequences: int
) -> None:
    for share in split(lengths, outstanding, max_sequences):
        assert 1 <= share.stop - share.start <= max_sequences
        assert share.stop - share.start == 1 or sum(lengths[share.start : share.stop]) <= MAX_SHARE_TOKENS


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
    assert split([100, 200], [900, 7, 8], 64) == [Share(1, 0, 2)]


def test_small_request_of_many_sequences_is_cut_where_a_message_ends() -> None:
    assert split([1] * 5, [0, 0], 2) == [Share(0, 0, 2), Share(0, 2, 4), Share(0, 4, 5)]


def test_large_request_on_idle_replicas_is_halved() -> None:
    assert split([512] * 8, [0, 0], 64) == [Share(0, 0, 4), Share(1, 4, 8)]


def test_large_request_fills_up_the_idle_replica() -> None:
    assert split([512] * 8, [1024, 0], 64) == [Share(0, 0, 3), Share(1, 3, 8)]
    assert split([512] * 8, [5000, 0], 64) == [Share(1, 0, 8)]


def test_huge_request_is_cut_by_tokens() -> None:
    shares = split([8192] * 100, [0], 2048)
    assert [share.stop - share.start for share in shares] == [32, 32, 32, 4]
