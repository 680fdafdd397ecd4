"""Lists of numbers to numpy, and what is no token id."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.token_ids import all_below, int32_ids, packed_ids

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.lists(INT32))
def test_any_ids_are_the_same_in_numpy(ids: list[int]) -> None:
    packed = packed_ids(ids)
    assert packed is not None
    for found in (int32_ids(ids), int32_ids(packed)):
        assert found is not None
        assert found.dtype == np.int32
        assert found.tolist() == packed.tolist() == ids


@pytest.mark.parametrize("wrong", [1 << 31, -(1 << 31) - 1, 10**30, 1.0, "1", None])
def test_what_is_no_32_bit_number_is_said_to_be_none(wrong: Any) -> None:
    assert packed_ids([1, wrong]) is None
    assert int32_ids([wrong]) is None


@given(st.lists(INT32, min_size=1), st.integers(1, (1 << 31) - 1))
def test_range(ids: list[int], limit: int) -> None:
    assert all_below(np.array(ids, np.int32), limit) is all(0 <= token_id < limit for token_id in ids)
