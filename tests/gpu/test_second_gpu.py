"""An engine on a GPU that is not the first, warmed up as the server does it: on a thread of its own."""

import threading
from pathlib import Path

import pytest
import torch
from cuda_steps import least_cosine, vectors_of
from rose_checkpoints import load, make_sequence, pack, random_ids, spec_of, write_checkpoint

from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_computes_there_and_leaves_the_first_alone(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    held_before = torch.cuda.memory_reserved(0)  # by this process: others may run beside it
    engine = load_engine(spec_of(tmp_path), EngineConfig(device="cuda:1", dtype="float32"))
    warming = threading.Thread(target=engine.warm_up)
    warming.start()
    warming.join()
    assert torch.cuda.memory_reserved(0) <= held_before  # less, where loading has freed what earlier tests left
    batch = pack(*(make_sequence(random_ids(n, seed=n)) for n in (1, 7, 64, 150)))
    assert 1 - least_cosine(vectors_of(engine, batch), vectors_of(load(tmp_path), batch)) < 1e-5
    assert engine.info.device == "cuda:1"
    engine.close()
