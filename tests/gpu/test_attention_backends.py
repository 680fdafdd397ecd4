"""Every attention backend that is installed, eager and replayed over other layouts, against softmax in float32."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import Batch, Int32Array, Sequence, SequenceLayout, whole_span
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.cuda.attention import BACKENDS, GraphAttention, create_attention, sequence_capacity

NUM_TOKENS = 1024
DEVICE = torch.device("cuda:0")
TOLERANCE = 5e-3

LAYOUTS = [(1024,), (600, 1, 300), (1, 1, 2, 7, 65, 64, 63), (512, 512), (130,) * 7, (1000,)]


def spec_of(head_dim: int, causal: bool) -> AttentionSpec:
    return AttentionSpec(num_heads=8, num_kv_heads=4, head_dim=head_dim, causal=causal)


def layout_of(lengths: tuple[int, ...]) -> SequenceLayout:
    return Batch.pack(Sequence(token_ids=np.zeros(n, np.int32), pool_spans=whole_span(n)) for n in lengths).layout


def padded(bounds: Int32Array, capacity: int) -> Tensor:
    words = np.full(capacity + 1, bounds[-1], np.int32)
    words[: len(bounds)] = bounds
    return torch.from_numpy(words)


def expected(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], *, causal: bool) -> Tensor:
    outs: list[Tensor] = []
    for q1, k1, v1 in zip(*(x[: sum(lengths)].float().split(lengths) for x in (q, k, v)), strict=True):
        heads = (x.transpose(0, 1).unsqueeze(0) for x in (q1, k1, v1))
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal, enable_gqa=True)
        outs.append(attended[0].transpose(0, 1))
    return torch.cat(outs)


class Harness:
    """One backend bound to a bucket, with a graph of its forward."""

    def __init__(self, backend: GraphAttention, spec: AttentionSpec) -> None:
        torch.manual_seed(0)
        self.backend, self.spec = backend, spec
        shape = (NUM_TOKENS, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)
        self.qkv = torch.randn(shape, device=DEVICE).to(torch.bfloat16)
        self.capacity = sequence_capacity(NUM_TOKENS)
        self.bounds = torch.zeros(self.capacity + 1, dtype=torch.int32, device=DEVICE)
        self.num_plans = 0

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        spec = self.spec
        q, k, v = self.qkv.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
        return q, k, v

    def plan(self, lengths: tuple[int, ...]) -> None:
        layout = layout_of(lengths)
        self.backend.plan(layout, NUM_TOKENS, self.num_plans % 2)
        self.num_plans += 1
        self.bounds.copy_(padded(layout.cu_seqlens, self.capacity))

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
        wanted = expected(*self.parts, lengths, causal=self.spec.causal)
        error = (out[: sum(lengths)].float() - wanted).norm() / wanted.norm()
        assert float(error) < TOLERANCE, lengths


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Callable[[AttentionSpec], Harness]:
    def create(spec: AttentionSpec) -> Harness:
        try:
            return Harness(create_attention(request.param, spec, DEVICE), spec)
        except ConfigError as error:
            pytest.skip(str(error))  # says which package or chip it needs

    return create


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_eager_and_replayed_over_other_layouts(
    make: Callable[[AttentionSpec], Harness], head_dim: int, causal: bool
) -> None:
    harness = make(spec_of(head_dim, causal))
    for lengths in LAYOUTS:
        harness.plan(lengths)
        harness.check(harness.run(), lengths)
    replay = harness.capture()
    for lengths in LAYOUTS:
        harness.plan(lengths)
        harness.check(replay(), lengths)


def test_rows_of_padding_come_out_finite_where_they_are_read(make: Callable[[AttentionSpec], Harness]) -> None:
    harness = make(spec_of(128, causal=False))
    lengths = (100, 30)
    harness.qkv[130:] = 0  # what a model's padding rows hold: finite values
    harness.plan(lengths)
    harness.check(harness.run(), lengths)
