"""Which sequences share a call of a compiled model, and where its attention finds their tokens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rosebed.rose.openvino.groups import FREE_SLOTS, LENGTH_STEP, MAX_SLOTS_PER_TOKEN, SHORT, Group, near_lengths


def grouped(*lengths: int) -> list[tuple[list[int], tuple[int, ...]]]:
    return [(group.members.tolist(), group.slots.shape) for group in near_lengths(np.array(lengths, np.int32))]


def test_one_sequence_is_not_padded() -> None:
    (group,) = near_lengths(np.array([3], np.int32))
    assert (group.slots.tolist(), group.padding.tolist(), group.places.tolist()) == (
        [[0, 1, 2]],
        [[0, 0, 0]],
        [0, 1, 2],
    )


def test_rows_are_in_the_batchs_order_and_padded_to_a_step() -> None:
    (group,) = near_lengths(np.array([2, 3], np.int32))
    assert group.members.tolist() == [0, 1]
    assert group.slots[:, :4].tolist() == [[0, 1, 0, 0], [2, 3, 4, 2]]
    assert np.isneginf(group.padding[:, :4]).tolist() == [[False, False, True, True], [False, False, False, True]]
    assert group.places.tolist() == [0, 1, LENGTH_STEP, LENGTH_STEP + 1, LENGTH_STEP + 2]


def test_short_ones_share_a_call_whatever_their_lengths() -> None:
    assert grouped(3, 60, 30, 45, 9) == [([0, 1, 2, 3, 4], (5, 64))]


def test_long_ones_share_it_with_those_of_half_their_length() -> None:
    assert grouped(100, 200, 99, 500) == [([3], (1, 500)), ([0, 1], (2, 208)), ([2], (1, 99))]


def test_many_of_one_token_do_not_take_the_rows_of_one_long_text() -> None:
    groups = grouped(64, *[1] * 1000)
    assert [(len(members), shape) for members, shape in groups] == [(6, (6, 64)), (995, (995, 16))]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=200))
def test_every_token_has_its_place(lengths: list[int]) -> None:
    groups = near_lengths(np.array(lengths, np.int32))
    members = np.concatenate([group.members for group in groups])
    assert sorted(members.tolist()) == list(range(len(lengths)))
    for group in groups:
        own = [lengths[member] for member in group.members]
        _check_places(group, own)
        assert max(own) <= max(SHORT, 2 * min(own))
        assert len(own) * max(own) <= MAX_SLOTS_PER_TOKEN * sum(own) + FREE_SLOTS


def _check_places(group: Group, lengths: list[int]) -> None:
    assert group.slots.ravel()[group.places].tolist() == list(range(sum(lengths)))
    assert (group.padding == 0).sum(1).tolist() == lengths
    owners = np.repeat(np.arange(len(lengths)), lengths)
    assert (owners[group.slots] == np.arange(len(lengths))[:, None]).all()  # also where it is padded
