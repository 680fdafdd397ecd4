"""Kernels run compiled where there is a GPU, and in Triton's interpreter where there is none."""

import pytest
import torch
from kernel_mode import INTERPRETED


@pytest.fixture
def device() -> torch.device:
    torch.manual_seed(0)
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(params=["float32"] if INTERPRETED else ["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    # The interpreter multiplies bfloat16 matrices wrongly (its numpy has no such type).
    return getattr(torch, request.param)


@pytest.fixture(params=[False] if INTERPRETED else [False, True], ids=lambda pdl: "pdl" if pdl else "plain")
def pdl(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def tolerance(dtype: torch.dtype) -> float:
    """Largest relative error, |out - ref| / |ref|."""
    return 5e-3 if dtype == torch.bfloat16 else 1e-5
