"""Which graph serves a batch: plain arithmetic, tested without torch."""

from hypothesis import given
from hypothesis import strategies as st

from rosebed.rose.cuda.budget import choose_budget
from rosebed.rose.cuda.keys import GraphKey, ladder, smallest_key, tokens_for_rows

RUNGS = ladder(8192)


def test_ladder_has_the_published_buckets_and_two_below() -> None:
    assert RUNGS[:4] == (16, 32, 64, 128)
    assert RUNGS[16:20] == (960, 1024, 1280, 1536)
    assert RUNGS[-1] == 8192
    assert ladder(100) == (16, 32, 64, 128)


@given(num_tokens=st.integers(1, 8192), num_rows=st.integers(1, 2048))
def test_the_chosen_key_dominates_and_none_smaller_does(num_tokens: int, num_rows: int) -> None:
    key = smallest_key(RUNGS, max(num_tokens, tokens_for_rows(num_rows)), "triton")
    assert key is not None
    assert key.num_tokens >= num_tokens
    assert key.num_rows >= num_rows
    below = RUNGS[RUNGS.index(key.num_tokens) - 1] if key.num_tokens > RUNGS[0] else 0
    assert below < num_tokens or GraphKey(below, "triton").num_rows < num_rows


def test_beyond_the_ladder_there_is_no_key() -> None:
    assert smallest_key(RUNGS, 8193, "triton") is None


def test_budget_is_the_smallest_that_is_good_enough() -> None:
    assert choose_budget({512: 1.0, 1024: 1.5, 2048: 2.9, 4096: 5.75}) == 2048
    assert choose_budget({512: 1.0, 1024: 2.5}) == 512
