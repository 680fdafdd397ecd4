"""Mean pooling of the reference operations against float64, whatever the spans."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rosebed.core.model_spec import Pooling
from rosebed.rose.ops import reference

TOKENS, WIDTH = 1000, 300


def _hidden_states() -> Tensor:
    """With one component far larger than the rest, as trained models have."""
    states = torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(0)) + 3
    states[:, 5] *= 1000
    return states


def _spans(num_spans: int, longest: int) -> Tensor:
    random = np.random.default_rng(0)
    starts = random.integers(0, TOKENS, num_spans)
    ends = np.minimum(starts + random.integers(1, longest + 1, num_spans), TOKENS)
    return torch.tensor(np.stack([starts, ends], 1), dtype=torch.int32)


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param(torch.tensor([[0, TOKENS]], dtype=torch.int32), id="one whole"),
        pytest.param(_spans(1000, 2), id="many short ones"),
        pytest.param(_spans(20_000, TOKENS), id="many that overlap"),
    ],
)
def test_means_are_exact(spans: Tensor) -> None:
    states = _hidden_states()
    expected = torch.stack([states[start:end].double().mean(0) for start, end in spans.tolist()])
    torch.testing.assert_close(reference.pool(states, spans, Pooling.MEAN).double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_spoils_its_own_spans_alone(value: float, copies: int) -> None:
    states = _hidden_states()
    states[400, 7] = value
    spans = torch.tensor([[0, 400], [300, 401], [400, 500], [401, TOKENS]] * copies, dtype=torch.int32)
    pooled = reference.pool(states, spans, Pooling.MEAN)
    assert pooled.isfinite().all(1).tolist() == [True, False, False, True] * copies


def test_half_precision_is_summed_in_full() -> None:
    states = _hidden_states().bfloat16()
    for spans in (_spans(3, 50), _spans(5000, TOKENS)):
        pooled = reference.pool(states, spans, Pooling.MEAN)
        assert pooled.dtype == torch.float32
        torch.testing.assert_close(pooled, reference.pool(states.float(), spans, Pooling.MEAN))
