"""Products in 8 bits: near the reference's, the same in any batch, and not finite where their input is not."""

from typing import Any

import numpy as np
import pytest
import torch
from rose_checkpoints import (
    cosine_error,
    load,
    make_sequence,
    pack,
    random_ids,
    write_checkpoint,
)
from torch import nn

from rosebed.core.types import OutputKind
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine
from rosebed.rose.ops import int8

pytestmark = pytest.mark.skipif(not int8.is_available(), reason="this torch has no quantized products")

INT8 = EngineConfig(device="cpu", dtype="int8")


@pytest.fixture(scope="module", params=["bert", "mpnet", "qwen3"])
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CpuEngine, CpuEngine]:
    """One model in 8 bits, and in float32, whose parity with transformers other tests hold."""
    folder = tmp_path_factory.mktemp(request.param)
    write_checkpoint(request.param, folder)
    return load(folder, config=INT8), load(folder)


def dense(engine: CpuEngine, *sequences: Any) -> torch.Tensor:
    lazy = engine.step(pack(*sequences))
    try:
        return torch.from_numpy(lazy.result().output(OutputKind.DENSE).copy())
    finally:
        lazy.release()


def test_near_float32(engines: tuple[CpuEngine, CpuEngine]) -> None:
    assert engines[0].info.dtype == "int8"
    sequence = make_sequence(random_ids(40))
    rounded, exact = (dense(engine, sequence) for engine in engines)
    assert 0 < cosine_error(rounded, exact) < 1e-2


def test_a_text_s_vector_is_its_own(engines: tuple[CpuEngine, CpuEngine]) -> None:
    sequence = make_sequence(random_ids(9))
    others = [make_sequence(random_ids(length, seed=length)) for length in (3, 9, 70)]
    alone, together = dense(engines[0], sequence), dense(engines[0], *others, sequence)
    torch.testing.assert_close(together[3:], alone, rtol=1e-5, atol=1e-6)


def test_a_product_is_within_its_rounding() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(384, 200)
    x = torch.randn(7, 384) * torch.logspace(-3, 3, 7).unsqueeze(1)
    x[3] = 5.0  # one value: no range to divide
    expected = linear(x).detach()
    int8.pack(nn.Sequential(linear))
    error = (int8.linear(x, linear.weight, linear.bias) - expected).norm(dim=1) / expected.norm(dim=1)
    assert (error < 0.01).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    linear = nn.Linear(8, 4)
    int8.pack(nn.Sequential(linear))
    x = torch.ones(3, 8)
    x[1, 2] = bad
    out = int8.linear(x, linear.weight, linear.bias)
    assert out.isfinite().all(1).tolist() == [True, False, True]
