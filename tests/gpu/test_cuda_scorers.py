"""Logits on a GPU against the CPU engine in float32: eager, captured and replayed, behind graphs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rose_checkpoints import make_sequence, pack, random_ids
from scorer_checkpoints import CONFIGS, write_scorer

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import Engine
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.core.types import Batch, Float32Array, OutputKind
from rosebed.rose import load_engine
from rosebed.rose.config import DtypeName, EngineConfig

LOGITS = frozenset({OutputKind.LOGITS})
LENGTHS = (7, 150, 2, 64, 1, 33)
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}
"""Of the largest logit, which is about 1."""


def load(folder: Path, device: str, dtype: DtypeName) -> Engine:
    spec = resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(task="score"))
    return load_engine(spec, EngineConfig(device=device, dtype=dtype, graphs="lazy"))


def batches(name: str) -> list[Batch]:
    sequences = [make_sequence(random_ids(length, seed=length), outputs=LOGITS) for length in LENGTHS]
    if name.startswith("bert"):
        sequences = [
            replace(sequence, token_type_ids=(np.arange(sequence.num_tokens) >= 5).astype(np.int32))
            for sequence in sequences
        ]
    return [pack(*sequences), pack(*sequences[::-1]), *(pack(sequence) for sequence in sequences)]


def logits_of(engine: Engine, batch: Batch) -> Float32Array:
    lazy = engine.step(batch)
    try:
        result = lazy.result()
        assert not result.status.any()
        return result.output(OutputKind.LOGITS).copy()
    finally:
        lazy.release()


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_the_cpus(name: str, dtype: DtypeName, tmp_path: Path) -> None:
    write_scorer(name, tmp_path)
    reference, engine = load(tmp_path, "cpu", "float32"), load(tmp_path, "cuda", dtype)
    assert engine.info.outputs == reference.info.outputs
    for _ in ("eager", "captured", "replayed"):
        for batch in batches(name):
            expected = logits_of(reference, batch)
            limit = TOLERANCES[dtype] * max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(logits_of(engine, batch), expected, atol=limit)
    engine.close()


def test_warming_up_measures_what_there_is(tmp_path: Path) -> None:
    write_scorer("xlm_roberta", tmp_path)
    spec = resolve_model_spec(CheckpointFiles.read(tmp_path))
    engine = load_engine(spec, EngineConfig(device="cuda", graphs="full"))
    engine.warm_up()
    assert logits_of(engine, batches("xlm_roberta")[0]).shape == (len(LENGTHS), 1)
    engine.close()
