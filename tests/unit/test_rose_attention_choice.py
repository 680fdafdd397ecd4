"""Which attention backend a batch gets, and which graphs are captured for that. No torch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.attention_choice import AttentionChoice, AttentionShape, attention_rows
from rosebed.rose.cuda.keys import (
    GraphKey,
    few_sequences,
    ladder,
    rungs_of,
    sequence_capacity,
    smallest_key,
    tokens_for_sequences,
)

BGE = AttentionShape(16, 16, 64, causal=False)
RUNGS = ladder(8192)


def entry(most_length: int, us: dict[str, float], **plan_us: float) -> dict[str, Any]:
    shape = {"num_heads": 16, "num_kv_heads": 16, "head_dim": 64, "causal": False}
    plans = {name.replace("_", "-"): value for name, value in plan_us.items()}
    return {**shape, "most_length": most_length, "us": us, "plan_us": plans}


TABLE = {
    "attention": [
        entry(5000, {"triton": 193.0, "fa4": 143.0, "flashinfer-fa3": 151.0}, flashinfer_fa3=160.0),
        entry(700, {"triton": 30.0, "flashinfer-fa3": 29.0}, flashinfer_fa3=280.0),
        entry(1400, {"triton": 60.0, "flashinfer-fa3": 40.0, "fa4": 50.0}, flashinfer_fa3=160.0),
    ]
}
ROWS = attention_rows(TABLE)[BGE]
NAMES = ("triton", "flashinfer-fa3", "fa4")
MEASURED = AttentionChoice(NAMES, 64, ROWS)


def test_rows_are_sorted_and_other_shapes_have_none() -> None:
    assert [row.most_length for row in ROWS] == [700, 1400, 5000]
    assert AttentionShape(16, 16, 64, causal=True) not in attention_rows(TABLE)
    assert attention_rows({}) == {}


@pytest.mark.parametrize("broken", [[{"us": {}}], [1], 3, [entry(5, None)]])  # pyright: ignore[reportArgumentType]
def test_rows_of_another_form_are_refused(broken: Any) -> None:
    with pytest.raises(ConfigError, match="the table of kernels has attention of another form"):
        attention_rows({"attention": broken})


def test_the_fastest_measured_is_taken() -> None:
    assert MEASURED.choose(4096, 8, 512, idle=False) == "flashinfer-fa3"
    assert MEASURED.choose(4096, 4, 1024, idle=False) == "flashinfer-fa3"
    assert MEASURED.choose(4096, 1, 4096, idle=False) == "fa4"
    assert MEASURED.choose(8192, 1, 8192, idle=False) == "fa4"  # the last row stands for everything longer


def test_a_plan_on_the_host_counts_when_idle() -> None:
    assert MEASURED.choose(4096, 8, 512, idle=True) == "triton"  # 29 + 280 / 24 against 30
    assert MEASURED.choose(4096, 4, 1024, idle=True) == "flashinfer-fa3"  # 40 + 160 / 24 against 50


def test_small_steps_are_ours() -> None:
    assert MEASURED.choose(1023, 1, 1023, idle=False) == "triton"


def test_what_pays_for_empty_sequences_is_for_few() -> None:
    assert MEASURED.choose(4096, few_sequences(4096), 4000, idle=False) == "fa4"
    assert MEASURED.choose(4096, few_sequences(4096) + 1, 4000, idle=False) == "flashinfer-fa3"
    assert MEASURED.choose(4096, sequence_capacity(4096) + 1, 4000, idle=False) == "triton"


def test_without_a_table_a_rule_by_length_decides() -> None:
    rule = AttentionChoice(("triton", "torch-varlen", "flashinfer-fa3", "fa3", "fa4"), 128)
    assert rule.choose(4096, 8, 512, idle=False) == "flashinfer-fa3"
    assert rule.choose(4096, 8, 512, idle=True) == "triton"
    assert rule.choose(4096, 8, 511, idle=False) == "triton"
    assert rule.choose(4096, 1, 4096, idle=True) == "flashinfer-fa3"
    assert rule.least_tokens() == {"triton": 0, "flashinfer-fa3": 1024}
    assert AttentionChoice(("triton", "fa3"), 64).least_tokens() == {"triton": 0, "fa3": 3072}
    assert AttentionChoice(("triton", "fa3"), 32).least_tokens() == {"triton": 0}


def test_only_what_may_be_chosen_is_captured() -> None:
    assert MEASURED.least_tokens() == {"triton": 0, "flashinfer-fa3": 1024, "fa4": 1401}
    rungs = rungs_of(MEASURED.keys(RUNGS))
    assert rungs["triton"] == RUNGS
    assert rungs["fa4"][0] == 1536
    slow = AttentionChoice(
        ("triton", "torch-varlen"),
        64,
        attention_rows({"attention": [entry(9999, {"triton": 1.0, "torch-varlen": 2.0})]})[BGE],
    )
    assert slow.least_tokens() == {"triton": 0}


lengths = st.lists(st.integers(1, 8192), min_size=1, max_size=150)


@given(lengths=lengths, idle=st.booleans(), choice=st.sampled_from([MEASURED, AttentionChoice(NAMES, 64)]))
def test_every_choice_has_a_captured_graph(lengths: list[int], idle: bool, choice: AttentionChoice) -> None:
    total = sum(lengths)
    if total > 8192:
        lengths, total = [8192 // len(lengths)] * len(lengths), 8192 // len(lengths) * len(lengths)
    typical = sum(length * length for length in lengths) // total
    name = choice.choose(total, len(lengths), typical, idle=idle)
    key = smallest_key(RUNGS, total, name, len(lengths))
    assert key in choice.keys(RUNGS)


@given(
    name=st.sampled_from(["triton", "fa3", "fa4", "torch-varlen", "flashinfer-fa2", "flashinfer-fa3"]),
    num_tokens=st.integers(1, 8192),
    num_sequences=st.integers(1, 128),
)
def test_a_backend_by_name_has_a_graph_for_every_batch(name: str, num_tokens: int, num_sequences: int) -> None:
    choice = AttentionChoice((name,), 64)
    assert choice.choose(num_tokens, num_sequences, 5, idle=True) == name
    key = smallest_key(RUNGS, max(num_tokens, tokens_for_sequences(num_sequences)), name, num_sequences)
    assert key is not None
    assert key in choice.keys(RUNGS)
    assert len(choice.keys(RUNGS)) <= 128
    assert key.attended_sequences >= min(num_sequences, key.num_rows)
    assert key.attended_sequences <= key.num_rows


def test_keys_for_few_sequences_are_apart_where_empty_ones_cost() -> None:
    assert GraphKey.holding(4096, "fa4", 1) == GraphKey.holding(4096, "fa4", 4) == GraphKey(4096, "fa4", 4)
    assert GraphKey.holding(4096, "fa4", 5) == GraphKey(4096, "fa4", 64)
    assert GraphKey.holding(4096, "fa3", 1) == GraphKey(4096, "fa3", 64)
    assert GraphKey.holding(4096, "triton", 1) == GraphKey(4096, "triton")
