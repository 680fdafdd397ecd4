"""These tests need a CUDA device; `make test-gpu` runs them, and says so when it ran none."""

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker("gpu")


@pytest.fixture(scope="session", autouse=True)
def _needs_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.fail("tests marked `gpu` need a CUDA device")
