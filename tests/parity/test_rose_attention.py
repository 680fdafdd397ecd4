"""The sdpa backend against attention written out, one sequence and one head at a time, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rose_checkpoints import make_sequence, pack, random_ids, relative_error

from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.sdpa import SHORT, SdpaAttention, equal_lengths

MAX_LENGTH = 90
HEAD_DIM = 16


def attention_written_out(
    spec: AttentionSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """float64[n, num_heads, head_dim] of one sequence."""
    length = len(q)
    distance = torch.arange(length) - torch.arange(length).unsqueeze(1)
    outputs: list[torch.Tensor] = []
    for head in range(spec.num_heads):
        kv_head = head // (spec.num_heads // spec.num_kv_heads)
        scores = q[:, head].double() @ k[:, kv_head].double().T / spec.head_dim**0.5
        if bias is not None:
            scores += bias[head].double()[distance + bias.shape[1] // 2]
        if spec.causal:
            scores[distance > 0] = -torch.inf
        if spec.window is not None:
            scores[distance.abs() > spec.window] = -torch.inf
        outputs.append(scores.softmax(-1) @ v[:, kv_head].double())
    return torch.stack(outputs, dim=1)


def check(spec: AttentionSpec, lengths: list[int], *, dtype: torch.dtype = torch.float32) -> float:
    """Largest relative error over tokens and heads."""
    torch.manual_seed(0)
    layout = pack(*(make_sequence(random_ids(length)) for length in lengths)).layout
    num_heads = spec.num_heads + 2 * spec.num_kv_heads
    qkv = torch.randn(sum(lengths), num_heads, spec.head_dim).to(dtype)
    q, k, v = qkv.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    bias = torch.randn(spec.num_heads, 2 * MAX_LENGTH - 1) if spec.relative_bias else None
    attention = SdpaAttention(spec)
    attention.plan(layout)
    actual = attention.forward(q, k, v, bias)
    assert actual.dtype == dtype
    parts = [
        attention_written_out(spec, q[start:end], k[start:end], v[start:end], bias)
        for start, end in zip(layout.cu_seqlens[:-1].tolist(), layout.cu_seqlens[1:].tolist(), strict=True)
    ]
    return relative_error(actual, torch.cat(parts))


SPECS = [
    AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=HEAD_DIM),
    AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=HEAD_DIM, causal=True),
    AttentionSpec(num_heads=4, num_kv_heads=1, head_dim=HEAD_DIM, window=5),
    AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=HEAD_DIM, causal=True, window=7),
    AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=HEAD_DIM, relative_bias=True),
    AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=HEAD_DIM, causal=True, relative_bias=True),
]


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, MAX_LENGTH), min_size=1, max_size=12))
def test_any_lengths(spec: AttentionSpec, lengths: list[int]) -> None:
    assert check(spec, lengths) < 1e-5


@pytest.mark.parametrize("spec", SPECS)
def test_bfloat16(spec: AttentionSpec) -> None:
    assert check(spec, [1, 9, 10, 64, 65, 90], dtype=torch.bfloat16) < 2e-2


def test_rows_of_no_sequence_are_zero() -> None:
    attention = SdpaAttention(SPECS[0])
    attention.plan(pack(make_sequence(random_ids(3))).layout)
    qkv = torch.full((5, 4, HEAD_DIM), torch.nan)
    qkv[:3] = 1
    out = attention.forward(qkv, qkv, qkv)
    torch.testing.assert_close(out[:3], torch.ones(3, 4, HEAD_DIM))
    assert (out[3:] == 0).all()


@given(lengths=st.lists(st.integers(1, 2 * SHORT), min_size=1, max_size=40))
def test_groups_hold_each_sequence_once(lengths: list[int]) -> None:
    cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
    owners = {int(start): length for start, length in zip(cu_seqlens, lengths, strict=False)}
    attended: list[int] = []
    for group in equal_lengths(cu_seqlens):
        side_by_side = torch.arange(group.start, group.start + group.num_tokens)
        rows = side_by_side if group.rows is None else group.rows
        assert group.rows is None or (group.length <= SHORT and not torch.equal(rows, side_by_side))
        for sequence in rows.view(group.num_sequences, group.length):
            assert owners[int(sequence[0])] == group.length
            assert torch.equal(sequence, sequence[0] + torch.arange(group.length))
        attended += rows.tolist()
    assert sorted(attended) == list(range(sum(lengths)))


def test_neighbours_of_one_length_share_a_call() -> None:
    groups = equal_lengths(np.array([0, 100, 200, 207, 307, 314], np.int32))
    assert [(group.num_sequences, group.length, group.start) for group in groups] == [
        (2, 7, 200),
        (2, 100, 0),
        (1, 100, 207),
    ]
    assert groups[0].rows is not None
    assert groups[0].rows.tolist() == [*range(200, 207), *range(307, 314)]


def test_a_bias_that_changes_between_layers_is_seen() -> None:
    spec = SPECS[4]
    attention = SdpaAttention(spec)
    attention.plan(pack(make_sequence(random_ids(5))).layout)
    q = torch.randn(5, spec.num_heads, HEAD_DIM)
    biases = torch.randn(2, spec.num_heads, 2 * MAX_LENGTH - 1)
    for bias in biases:
        expected = attention_written_out(spec, q, q, q, bias)
        assert relative_error(attention.forward(q, q, q, bias), expected) < 1e-5
