"""Which sequences share a call of a compiled model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.rose.openvino.groups import MAX_PADDING, MAX_TOKENS, near_lengths


def grouped(*lengths: int) -> list[tuple[list[int], int]]:
    return [(group.members.tolist(), group.length) for group in near_lengths(np.array(lengths, np.int32))]


def test_one_sequence() -> None:
    assert grouped(7) == [([0], 7)]


def test_equal_lengths_stay_in_order() -> None:
    assert grouped(5, 5, 5) == [([0, 1, 2], 5)]


def test_longest_first_until_the_padding_is_full() -> None:
    # 40 and 37 leave room for 5 more tokens of padding: 35 fits, 33 does not any more.
    assert grouped(33, 37, 40, 35, 32) == [([2, 1, 3], 40), ([0, 4], 33)]


def test_far_lengths_are_computed_apart() -> None:
    assert grouped(3, 200, 30) == [([1], 200), ([2], 30), ([0], 3)]


def test_a_group_has_a_limit_which_a_single_sequence_may_pass() -> None:
    assert grouped(*[512] * 5) == [([0, 1, 2, 3], 512), ([4], 512)]
    assert grouped(MAX_TOKENS + 1, MAX_TOKENS + 1) == [([0], MAX_TOKENS + 1), ([1], MAX_TOKENS + 1)]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=200))
def test_every_sequence_once_and_little_padding(lengths: list[int]) -> None:
    groups = near_lengths(np.array(lengths, np.int32))
    members = np.concatenate([group.members for group in groups])
    assert sorted(members.tolist()) == list(range(len(lengths)))
    for group in groups:
        own = [lengths[member] for member in group.members]
        assert group.length == max(own)
        assert sum(group.length - length for length in own) <= MAX_PADDING
        assert np.prod(group.shape) <= max(MAX_TOKENS, group.length)


@pytest.mark.parametrize("lengths", [(9, 9, 9, 1), (1, 9, 9, 9)])
def test_order_does_not_change_who_is_together(lengths: tuple[int, ...]) -> None:
    assert {tuple(sorted(lengths[member] for member in members)) for members, _ in grouped(*lengths)} == {(1, 9, 9, 9)}
