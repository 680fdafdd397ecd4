"""A checkpoint is loaded without ever holding two copies of it. Measured in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from rose_checkpoints import random_model

_LOAD = """
import sys, torch
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.rose.loader import load_model
from rosebed.rose.ops import reference
from rosebed.rose.weights import peak_rss_bytes
from pathlib import Path
spec = resolve_model_spec(CheckpointFiles.read(Path(sys.argv[1])), ModelOverrides(pooling="mean"))
torch.ones(8).sum()
before = peak_rss_bytes()
report = load_model(spec, reference, device=torch.device("cpu"), dtype=getattr(torch, sys.argv[2])).report
print((report.peak_rss_bytes - before) / report.num_bytes)
"""


@pytest.fixture(scope="module", params=["safetensors", "pickle"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 240 MB on disk."""
    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=512, num_hidden_layers=19, num_attention_heads=8, intermediate_size=2048
    )
    folder = tmp_path_factory.mktemp("large")
    model = random_model(config)
    assert sum(parameter.nbytes for parameter in model.parameters()) > 200e6
    model.save_pretrained(folder)
    if request.param == "pickle":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peak_is_one_copy_in_the_models_own_type(folder: Path, dtype: torch.dtype) -> None:
    command = [sys.executable, "-c", _LOAD, str(folder), str(dtype).removeprefix("torch.")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    growth = json.loads(done.stdout.splitlines()[-1])
    # In bfloat16 the pickle's 64 MB of mapped pages weigh twice as much against the model.
    assert 0.9 < growth < (1.4 if dtype is torch.float32 else 1.8)
