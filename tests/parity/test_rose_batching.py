"""A vector does not depend on its batch mates, their order, or their faults."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rose_checkpoints import load, make_sequence, pack, random_ids, write_checkpoint
from safetensors.torch import load_file, save_file

from rosebed.core.outputs import RowStatus
from rosebed.core.types import Batch, Float32Array, OutputKind
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine

LENGTHS = (3, 70, 1, 64, 20, 21, 150, 9, 20)
POISON = 299
"""A token id whose embedding is NaN in the poisoned checkpoint."""


def vectors_of(engine: CpuEngine, batch: Batch) -> Float32Array:
    lazy = engine.step(batch)
    try:
        return lazy.result().output(OutputKind.DENSE).copy()
    finally:
        lazy.release()


@pytest.fixture(scope="module", params=["bert", "mpnet", "qwen3", "pplx"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    write_checkpoint(request.param, folder)
    return folder


@pytest.fixture(params=["torch", "openvino"])
def config(request: pytest.FixtureRequest) -> EngineConfig:
    return EngineConfig(device="cpu", num_threads=1, cpu_backend=request.param)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_batch_equals_singles(folder: Path, config: EngineConfig, pooling: str) -> None:
    engine = load(folder, config=config, pooling=pooling)
    sequences = [make_sequence(random_ids(length, seed=i)) for i, length in enumerate(LENGTHS)]
    together = vectors_of(engine, pack(*sequences))
    alone = np.concatenate([vectors_of(engine, pack(sequence)) for sequence in sequences])
    np.testing.assert_allclose(together, alone, atol=1e-5, rtol=1e-5)


def test_order_does_not_matter(folder: Path, config: EngineConfig) -> None:
    engine = load(folder, config=config)
    sequences = [make_sequence(random_ids(length, seed=i)) for i, length in enumerate(LENGTHS)]
    order = np.random.default_rng(3).permutation(len(sequences))
    straight = vectors_of(engine, pack(*sequences))
    shuffled = vectors_of(engine, pack(*(sequences[i] for i in order)))
    np.testing.assert_allclose(shuffled, straight[order], atol=1e-5, rtol=1e-5)


def test_a_bad_sequence_spoils_only_itself(folder: Path, config: EngineConfig, tmp_path: Path) -> None:
    _poison(folder, tmp_path)
    engine = load(tmp_path, config=config)
    sequences = [make_sequence(random_ids(length, seed=i) % POISON) for i, length in enumerate(LENGTHS)]
    clean = vectors_of(engine, pack(*sequences))
    bad = {1, 4}
    for index in bad:
        sequences[index] = make_sequence(np.append(sequences[index].token_ids[:-1], np.int32(POISON)))
    lazy = engine.step(pack(*sequences))
    result = lazy.result()
    expected = [RowStatus.NON_FINITE if i in bad else RowStatus.OK for i in range(len(sequences))]
    assert result.status.tolist() == expected
    good = [i for i in range(len(sequences)) if i not in bad]
    np.testing.assert_array_equal(result.output(OutputKind.DENSE)[good], clean[good])
    lazy.release()


def _poison(source: Path, target: Path) -> None:
    tensors = load_file(source / "model.safetensors")
    (name,) = (n for n in tensors if n.endswith(("word_embeddings.weight", "embed_tokens.weight")))
    tensors[name][POISON] = torch.nan
    save_file(tensors, target / "model.safetensors")
    (target / "config.json").write_bytes((source / "config.json").read_bytes())
