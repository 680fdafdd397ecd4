"""`rosebed tune` where there is no GPU to measure."""

import subprocess
import sys

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--device cuda: torch sees no CUDA device here"),
        (["--device", "cuda:1"], "--device cuda:1: torch sees no CUDA device here"),
        (["--device", "cpu"], "--device cpu: rosebed tune measures a GPU"),
    ],
)
def test_says_that_it_needs_a_gpu(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "rosebed", "tune", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
