"""Every attention backend that is installed, eager and replayed over other layouts, against softmax in float32."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import Batch, Int32Array, Sequence, SequenceLayout, whole_span
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.masks import position_mask
from rosebed.rose.cuda.attention import BACKENDS, GraphAttention, create_attention
from rosebed.rose.cuda.attention_choice import AttentionShape, attention_rows
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.tune_attention import tune_attention

NUM_TOKENS = 1024
DEVICE = torch.device("cuda:0")
TOLERANCE = 5e-3
MANY, FEW = 16, 4
"""Most sequences of a layout: for backends that pay for empty ones, of one key and of another."""

LAYOUTS = [(1024,), (600, 1, 300), (1, 1, 2, 7, 65, 64, 63), (512, 512), (130,) * 7, (1000,), (1,) * 16, (1,)]
FEW_LAYOUTS = [lengths for lengths in LAYOUTS if len(lengths) <= FEW]

READ_PAST_THE_END = frozenset({"flashinfer-fa3", "fa3", "fa4"})
"""Backends whose keys are loaded by whole tiles, so that a NaN may reach the sequence before it: as NaN, never as
another number."""


def spec_of(head_dim: int, causal: bool, window: int | None = None) -> AttentionSpec:
    return AttentionSpec(num_heads=8, num_kv_heads=4, head_dim=head_dim, causal=causal, window=window)


def layout_of(lengths: tuple[int, ...]) -> SequenceLayout:
    return Batch.pack(Sequence(token_ids=np.zeros(n, np.int32), pool_spans=whole_span(n)) for n in lengths).layout


def padded(bounds: Int32Array, capacity: int) -> Tensor:
    words = np.full(capacity + 1, bounds[-1], np.int32)
    words[: len(bounds)] = bounds
    return torch.from_numpy(words)


def expected(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], spec: AttentionSpec) -> Tensor:
    outs: list[Tensor] = []
    for q1, k1, v1 in zip(*(x[: sum(lengths)].float().split(lengths) for x in (q, k, v)), strict=True):
        heads = (x.transpose(0, 1).unsqueeze(0) for x in (q1, k1, v1))
        mask = position_mask(len(q1), spec, q.device)
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True)
        outs.append(attended[0].transpose(0, 1))
    return torch.cat(outs)


class Harness:
    """One backend bound to a bucket, with a graph of its forward."""

    def __init__(
        self, name: str, spec: AttentionSpec, *, max_sequences: int = MANY, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        torch.manual_seed(0)
        self.name, self.spec = name, spec
        self.backend: GraphAttention = create_attention(name, spec, DEVICE, dtype)
        self.key = GraphKey.holding(NUM_TOKENS, name, max_sequences)
        shape = (NUM_TOKENS, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        self.qkv = torch.randn(shape, device=DEVICE).to(dtype)
        self.bounds = torch.zeros(self.key.attended_sequences + 1, dtype=torch.int32, device=DEVICE)
        self.num_plans = 0

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        spec = self.spec
        q, k, v = self.qkv.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
        return q, k, v

    def plan(self, lengths: tuple[int, ...]) -> None:
        torch.cuda.synchronize()  # as the engine's ring does, before host memory of a plan is written again
        layout = layout_of(lengths)
        self.backend.plan(layout, self.key, self.num_plans % 2)
        self.num_plans += 1
        self.bounds.copy_(padded(layout.cu_seqlens, self.key.attended_sequences))

    def run(self) -> Tensor:
        return self.backend.bind(self.bounds, NUM_TOKENS).forward(*self.parts)

    def capture(self) -> Callable[[], Tensor]:
        self.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.run()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    def check(self, out: Tensor, lengths: tuple[int, ...]) -> None:
        wanted = expected(*self.parts, lengths, self.spec)
        assert relative_error(out[: sum(lengths)], wanted) < TOLERANCE, lengths


def relative_error(out: Tensor, wanted: Tensor) -> float:
    return float((out.float() - wanted).norm() / wanted.norm())


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Callable[..., Harness]:
    def create(spec: AttentionSpec, *, max_sequences: int = MANY, dtype: torch.dtype = torch.bfloat16) -> Harness:
        try:
            return Harness(request.param, spec, max_sequences=max_sequences, dtype=dtype)
        except ConfigError as error:
            pytest.skip(str(error))  # says which package or chip it needs

    return create


def check_layouts(harness: Harness, layouts: list[tuple[int, ...]]) -> None:
    for lengths in layouts:
        harness.plan(lengths)
        harness.check(harness.run(), lengths)
    replay = harness.capture()
    for lengths in layouts:
        harness.plan(lengths)
        harness.check(replay(), lengths)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_eager_and_replayed_over_other_layouts(make: Callable[..., Harness], head_dim: int, causal: bool) -> None:
    check_layouts(make(spec_of(head_dim, causal)), LAYOUTS)


def test_a_key_for_few_sequences(make: Callable[..., Harness]) -> None:
    check_layouts(make(spec_of(128, causal=False), max_sequences=FEW), FEW_LAYOUTS)


def test_a_layout_again_and_after_one_of_another_bucket(make: Callable[..., Harness]) -> None:
    harness = make(spec_of(128, causal=False))
    lengths, others = (600, 1, 300), (20, 30)
    harness.plan(lengths)
    replay = harness.capture()
    for _ in range(2):  # a plan that the device already holds is not made again
        harness.plan(lengths)
        harness.check(replay(), lengths)
    harness.backend.plan(layout_of(others), GraphKey.holding(64, harness.name, MANY), 0)
    harness.plan(lengths)
    harness.check(replay(), lengths)


def test_float16(make: Callable[..., Harness]) -> None:
    check_layouts(make(spec_of(64, causal=False), dtype=torch.float16), LAYOUTS[:3])


@pytest.mark.parametrize("causal", [False, True])
def test_sliding_windows(make: Callable[..., Harness], causal: bool) -> None:
    check_layouts(make(spec_of(64, causal, window=64)), LAYOUTS[:5])


def test_rows_of_padding_come_out_finite_where_they_are_read(make: Callable[..., Harness]) -> None:
    harness = make(spec_of(128, causal=False))
    lengths = (100, 30)
    harness.qkv[130:] = 0  # what a model's padding rows hold: finite values
    harness.plan(lengths)
    out = harness.run()
    harness.check(out, lengths)
    if harness.name != "triton":  # ours neither reads nor writes them
        assert bool(out.isfinite().all())


def check_spoilt(harness: Harness, lengths: tuple[int, ...], spoilt: int, rows: slice) -> None:
    """NaN in `rows`, which are those of sequence `spoilt`, or of padding: the others come out as if it were not there;
    where keys are read past a sequence's end, those before it may come out as NaN, but as no other number."""
    harness.plan(lengths)
    replay = harness.capture()
    wanted = expected(*harness.parts, lengths, harness.spec).split(lengths)
    harness.qkv[rows] = torch.nan
    for run in (harness.run, replay):
        harness.plan(lengths)
        out = run()[: sum(lengths)].split(lengths)
        for index, (actual, right) in enumerate(zip(out, wanted, strict=True)):
            if index == spoilt:
                assert bool(actual.isnan().any())
            elif index < spoilt and harness.name in READ_PAST_THE_END:
                finite = actual.isfinite()
                assert not finite.any() or relative_error(actual[finite], right[finite]) < TOLERANCE, index
            else:
                assert relative_error(actual, right) < TOLERANCE, index


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_a_neighbour_of_nan(make: Callable[..., Harness], head_dim: int, causal: bool) -> None:
    check_spoilt(make(spec_of(head_dim, causal)), (300, 5, 70, 200, 1), 2, slice(305, 375))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_nan_in_rows_that_no_sequence_owns(make: Callable[..., Harness], head_dim: int) -> None:
    check_spoilt(make(spec_of(head_dim, causal=False)), (300, 5, 70), 3, slice(375, None))


def test_times_become_rows_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rosebed.rose.cuda.tune_attention.LENGTHS", (512, 4096))
    shape = AttentionShape(num_heads=8, num_kv_heads=4, head_dim=64, causal=False)
    rows = attention_rows({"attention": tune_attention([shape], DEVICE)})[shape]
    assert [row.most_length for row in rows] == [724, 5792]
    assert all(time > 0 for row in rows for time in row.us.values())
    assert all("triton" in row.us for row in rows)
