"""Pooling, Dense stages and BGE-M3's token outputs, against sentence-transformers and numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rose_checkpoints import (
    load,
    make_sequence,
    pack,
    random_ids,
    reference_hidden_states,
    write_checkpoint,
)
from sentence_transformers.base.modules import Dense

from rosebed.core.errors import CheckpointError
from rosebed.core.outputs import OutputSpec, RowsPer, StepResult
from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.rose.config import EngineConfig

HIDDEN = 64
LENGTHS = (5, 80, 1, 33)
ALL = frozenset({OutputKind.DENSE, OutputKind.SPARSE, OutputKind.MULTI_VECTOR})


def write_modules(folder: Path, *stages: tuple[str, str]) -> None:
    """modules.json of (class name, folder) stages."""
    transformer = '{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}'
    rest = [
        f'{{"idx": {i + 1}, "path": "{path}", "type": "sentence_transformers.models.{kind}"}}'
        for i, (kind, path) in enumerate(stages)
    ]
    (folder / "modules.json").write_text(f"[{', '.join([transformer, *rest])}]")


def random_dense(in_features: int, out_features: int, activation: torch.nn.Module, *, bias: bool = True) -> Dense:
    torch.manual_seed(in_features + out_features)
    return Dense(in_features, out_features, bias=bias, activation_function=activation)


def step(folder: Path, sequences: list[Sequence], **overrides: Any) -> StepResult:
    return load(folder, **overrides).step(pack(*sequences)).result()


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Any, Path]:
    return write_checkpoint("xlm_roberta", tmp_path), tmp_path


def states_of(model: Any, sequences: list[Sequence]) -> list[Float32Array]:
    return [reference_hidden_states("xlm_roberta", model, sequence).numpy() for sequence in sequences]


@pytest.mark.parametrize("safe_serialization", [True, False])
@pytest.mark.parametrize(
    "chain",
    [
        [(HIDDEN, 24, torch.nn.Tanh(), True)],
        [(HIDDEN, 96, torch.nn.Identity(), False), (96, 16, torch.nn.GELU(), True)],
        [(HIDDEN, HIDDEN, torch.nn.ReLU(), True)],
    ],
)
def test_dense_stages(checkpoint: tuple[Any, Path], chain: list[Any], safe_serialization: bool) -> None:
    model, folder = checkpoint
    stages = [random_dense(*stage[:3], bias=stage[3]) for stage in chain]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    for index, stage in enumerate(stages):
        path = folder / f"{index + 2}_Dense"
        path.mkdir()
        stage.save(str(path), safe_serialization=safe_serialization)
    dense = [("Dense", f"{index + 2}_Dense") for index in range(len(stages))]
    write_modules(folder, ("Pooling", "1_Pooling"), *dense, ("Normalize", "9_Normalize"))

    sequences = [make_sequence(random_ids(length, seed=length)) for length in LENGTHS]
    result = step(folder, sequences, pooling=None)
    features = {"sentence_embedding": torch.from_numpy(np.stack([s.mean(0) for s in states_of(model, sequences)]))}
    with torch.inference_mode():
        for stage in stages:
            features = stage(features)
    expected = torch.nn.functional.normalize(features["sentence_embedding"], dim=1).numpy()
    np.testing.assert_allclose(result.output(OutputKind.DENSE), expected, atol=1e-5)


def test_a_dense_stage_without_its_weights(checkpoint: tuple[Any, Path]) -> None:
    folder = checkpoint[1]
    for path, config in (
        ("1_Pooling", '{"pooling_mode_cls_token": true}'),
        ("2_Dense", '{"in_features": 64, "out_features": 8}'),
    ):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(config)
    write_modules(folder, ("Pooling", "1_Pooling"), ("Dense", "2_Dense"))
    with pytest.raises(CheckpointError, match=r"2_Dense holds none of model\.safetensors"):
        load(folder, pooling=None)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_pooling_of_overlapping_spans_in_any_order(checkpoint: tuple[Any, Path], pooling: str) -> None:
    model, folder = checkpoint
    spans = np.array([[3, 80], [0, 1], [2, 40]], np.int32)
    sequences = [make_sequence(random_ids(7)), make_sequence(random_ids(80, seed=1), pool_spans=spans)]
    result = step(folder, sequences, pooling=pooling)
    states = states_of(model, sequences)[1]
    expected = np.stack([pooled(states[start:end], pooling) for start, end in spans])
    np.testing.assert_allclose(result.rows(OutputKind.DENSE, 1), expected, atol=1e-5)


def pooled(states: Float32Array, pooling: str) -> Float32Array:
    if pooling == "mean":
        return states.mean(0)
    return states[0 if pooling == "cls" else -1]


def write_bge_m3_heads(folder: Path) -> dict[str, torch.nn.Linear]:
    torch.manual_seed(5)
    heads = {"sparse_linear.pt": torch.nn.Linear(HIDDEN, 1), "colbert_linear.pt": torch.nn.Linear(HIDDEN, 48)}
    for name, head in heads.items():
        torch.save(head.state_dict(), folder / name)
    return heads


def test_sparse_and_multi_vector(checkpoint: tuple[Any, Path]) -> None:
    model, folder = checkpoint
    heads = {name: head.state_dict() for name, head in write_bge_m3_heads(folder).items()}
    engine = load(folder)
    assert engine.info.outputs == {
        OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=HIDDEN),
        OutputKind.SPARSE: OutputSpec(rows_per=RowsPer.TOKEN, dim=1),
        OutputKind.MULTI_VECTOR: OutputSpec(rows_per=RowsPer.TOKEN, dim=48),
    }
    wanted = [ALL, frozenset({OutputKind.MULTI_VECTOR}), frozenset({OutputKind.DENSE}), ALL - {OutputKind.DENSE}]
    sequences = [make_sequence(random_ids(n, seed=n), outputs=w) for n, w in zip(LENGTHS, wanted, strict=True)]
    result = engine.step(pack(*sequences)).result()
    for index, states in enumerate(states_of(model, sequences)):
        sparse = states @ heads["sparse_linear.pt"]["weight"].numpy().T + heads["sparse_linear.pt"]["bias"].numpy()
        multi = states @ heads["colbert_linear.pt"]["weight"].numpy().T + heads["colbert_linear.pt"]["bias"].numpy()
        multi /= np.linalg.norm(multi, axis=1, keepdims=True)
        expected = {
            OutputKind.DENSE: states.mean(0, keepdims=True),
            OutputKind.SPARSE: np.maximum(sparse, 0),
            OutputKind.MULTI_VECTOR: multi,
        }
        for kind in ALL:
            if kind in wanted[index]:
                np.testing.assert_allclose(result.rows(kind, index), expected[kind], atol=1e-5)
            else:
                assert len(result.rows(kind, index)) == 0
    assert (result.output(OutputKind.SPARSE) > 0).any()
    assert (result.status == 0).all()


def test_without_their_files_the_outputs_are_not_offered(checkpoint: tuple[Any, Path]) -> None:
    assert set(load(checkpoint[1]).info.outputs) == {OutputKind.DENSE}


def test_bfloat16_engine(checkpoint: tuple[Any, Path]) -> None:
    model, folder = checkpoint
    engine = load(folder, config=EngineConfig(device="cpu", dtype="bfloat16"))
    assert engine.info.dtype == "bfloat16"
    sequences = [make_sequence(random_ids(length, seed=length), normalize=True) for length in LENGTHS]
    vectors = engine.step(pack(*sequences)).result().output(OutputKind.DENSE)
    expected = np.stack([states.mean(0) for states in states_of(model, sequences)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    assert ((vectors * expected).sum(1) > 1 - 1e-3).all()
