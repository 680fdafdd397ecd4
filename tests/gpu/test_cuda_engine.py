"""The CUDA engine against the CPU engine in float32: eager, captured and replayed, over changing layouts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from cuda_steps import least_cosine, vectors_of
from rose_checkpoints import load, make_sequence, pack, random_ids, rewrite_json, spec_of, write_checkpoint
from safetensors.torch import load_file, save_file

from rosebed.core.errors import StepFailed
from rosebed.core.outputs import RowStatus
from rosebed.core.types import Batch, OutputKind, Sequence
from rosebed.rose import load_engine
from rosebed.rose.config import DtypeName, EngineConfig, GraphPolicy
from rosebed.rose.cuda.engine import CudaEngine

NAMES = ("bert", "bert_relu", "xlm_roberta", "mpnet", "distilbert", "qwen3", "pplx")
LENGTHS = (1, 2, 7, 63, 64, 65, 150)
COSINE_ERROR = {"float32": 1e-5, "bfloat16": 1e-3}
POISON = 299


def cuda(folder: Path, dtype: DtypeName, graphs: GraphPolicy = "lazy", pooling: str = "mean") -> CudaEngine:
    config = EngineConfig(device="cuda", dtype=dtype, graphs=graphs, token_budget=512)
    engine = load_engine(spec_of(folder, pooling=pooling), config)
    assert isinstance(engine, CudaEngine)
    return engine


def batches() -> list[Batch]:
    """Layouts that share buckets, so that a replay meets another layout than its capture did."""
    rng = np.random.default_rng(0)
    mixed = [make_sequence(random_ids(int(n), seed=int(n))) for n in rng.integers(1, 150, 12)]
    return [
        *(pack(make_sequence(random_ids(n, seed=n))) for n in LENGTHS),
        pack(*(make_sequence(random_ids(n, seed=n)) for n in LENGTHS)),
        pack(*mixed),
        pack(*mixed[::-1]),
        pack(*(make_sequence(random_ids(1, seed=n)) for n in range(100))),
    ]


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    write_checkpoint(request.param, folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_equals_cpu(folder: Path, dtype: DtypeName, pooling: str) -> None:
    reference, engine = load(folder, pooling=pooling), cuda(folder, dtype, pooling=pooling)
    for repeat in ("eager", "captured", "replayed"):
        for batch in batches():
            error = 1 - least_cosine(vectors_of(engine, batch), vectors_of(reference, batch))
            assert error < COSINE_ERROR[dtype], (repeat, np.diff(batch.layout.cu_seqlens).tolist())


def test_dimensions_normalize_spans_and_types(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    reference, engine = load(tmp_path), cuda(tmp_path, "float32")
    types = np.random.default_rng(5).integers(0, 2, 40, dtype=np.int32)
    spans = np.array([[0, 3], [3, 40], [5, 6]], np.int32)
    batch = pack(
        make_sequence(random_ids(40), token_type_ids=types, pool_spans=spans, dimensions=16, normalize=True),
        make_sequence(random_ids(9), normalize=False),
        make_sequence(random_ids(20), normalize=True, dimensions=1),
    )
    for _ in range(3):
        np.testing.assert_allclose(vectors_of(engine, batch), vectors_of(reference, batch), atol=1e-5, rtol=1e-4)


def test_full_policy_captures_everything_first(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    reference, engine = load(tmp_path), cuda(tmp_path, "bfloat16", graphs="full")
    engine.warm_up()
    for batch in batches():
        assert 1 - least_cosine(vectors_of(engine, batch), vectors_of(reference, batch)) < 1e-3


@pytest.mark.parametrize("name", ["bert", "pplx"])
def test_a_nan_sequence_spoils_only_itself(name: str, tmp_path: Path) -> None:
    write_checkpoint(name, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (table,) = (n for n in tensors if n.endswith(("word_embeddings.weight", "embed_tokens.weight")))
    tensors[table][POISON] = torch.nan
    save_file(tensors, tmp_path / "model.safetensors")
    engine = cuda(tmp_path, "bfloat16")
    sequences = [make_sequence(random_ids(n, seed=n) % POISON) for n in (5, 70, 64, 9, 33)]
    clean = vectors_of(engine, pack(*sequences))
    for bad in (0, 1, 4):
        spoilt = list(sequences)
        spoilt[bad] = make_sequence(np.append(sequences[bad].token_ids[:-1], np.int32(POISON)))
        lazy = engine.step(pack(*spoilt))
        result = lazy.result()
        assert result.status.tolist() == [RowStatus.NON_FINITE if i == bad else RowStatus.OK for i in range(5)]
        good = [i for i in range(5) if i != bad]
        np.testing.assert_allclose(result.output(OutputKind.DENSE)[good], clean[good], atol=1e-6)
        lazy.release()


def test_two_steps_in_flight_do_not_mix(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    engine = cuda(tmp_path, "bfloat16", graphs="full")
    engine.warm_up()
    sequences: list[list[Sequence]] = [[make_sequence(random_ids(n, seed=s)) for n in (30, 40)] for s in range(20)]
    alone = [vectors_of(engine, pack(*pair)) for pair in sequences]
    pending = engine.step(pack(*sequences[0]))
    for index in range(1, len(sequences)):
        following = engine.step(pack(*sequences[index]))
        np.testing.assert_array_equal(pending.result().output(OutputKind.DENSE), alone[index - 1])
        pending.release()
        pending = following
    np.testing.assert_array_equal(pending.result().output(OutputKind.DENSE), alone[-1])


def test_longer_than_the_ladder(tmp_path: Path) -> None:
    write_checkpoint("pplx", tmp_path)
    rewrite_json(tmp_path / "config.json", {"max_position_embeddings": 9000})
    reference, engine = load(tmp_path), cuda(tmp_path, "bfloat16")
    for length in (8500, 8193, 8192):
        batch = pack(make_sequence(random_ids(length)))
        assert 1 - least_cosine(vectors_of(engine, batch), vectors_of(reference, batch)) < 1e-3


def test_more_vectors_than_it_holds_fail_the_step_alone(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    engine = cuda(tmp_path, "bfloat16")
    spans = np.tile(np.array([[0, 150]], np.int32), (3000, 1))
    fine = pack(make_sequence(random_ids(9)))
    before = vectors_of(engine, fine)
    for _ in range(3):  # more often than there are buffers
        with pytest.raises(StepFailed, match="3000 vectors are more than this engine holds"):
            engine.step(pack(make_sequence(random_ids(150), pool_spans=spans)))
    np.testing.assert_array_equal(vectors_of(engine, fine), before)
