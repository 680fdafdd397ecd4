"""Models compiled by OpenVINO compute what transformers computes, and torch takes over where it cannot."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rose_assets import minilm
from rose_checkpoints import (
    CONFIGS,
    MAX_LENGTH,
    cosine_error,
    load,
    make_sequence,
    pack,
    random_ids,
    reference_hidden_states,
    relative_error,
    spec_of,
    write_checkpoint,
)

from rosebed.core.errors import ConfigError, MissingExtra, StepFailed
from rosebed.core.types import Batch, Float32Array, OutputKind, Sequence
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.sdpa import SdpaAttention
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine
from rosebed.rose.loader import load_model
from rosebed.rose.openvino.forward import OpenVinoForward
from rosebed.rose.openvino.groups import near_lengths
from rosebed.rose.openvino.traced import RowsAttention
from rosebed.rose.ops import cpu

OPENVINO = EngineConfig(device="cpu", num_threads=1, cpu_backend="openvino")
TORCH = EngineConfig(device="cpu", num_threads=1, cpu_backend="torch")
TOLERANCE = 1e-5


def compiled(folder: Path, **overrides: Any) -> OpenVinoForward:
    loaded = load_model(spec_of(folder, **overrides), cpu, device=torch.device("cpu"), dtype=torch.float32)
    return OpenVinoForward(loaded, dtype="float32", num_threads=1)


def vectors_of(engine: CpuEngine, batch: Batch) -> Float32Array:
    lazy = engine.step(batch)
    try:
        return lazy.result().output(OutputKind.DENSE).copy()
    finally:
        lazy.release()


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, write_checkpoint(request.param, folder), folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_checkpoint("bert", folder)
    return folder


def sequences_for(name: str, lengths: tuple[int, ...]) -> list[Sequence]:
    rng = np.random.default_rng(1)
    types = [
        rng.integers(0, 2, length, dtype=np.int32) if name.startswith("bert") and index % 2 else None
        for index, length in enumerate(lengths)
    ]
    return [
        make_sequence(random_ids(length, seed=index), token_type_ids=types[index], normalize=False)
        for index, length in enumerate(lengths)
    ]


def test_hidden_states_alone_padded_and_in_mixtures(checkpoint: tuple[str, Any, Path]) -> None:
    name, model, folder = checkpoint
    forward = compiled(folder)
    for lengths in ((1,), (MAX_LENGTH,), (7, 7, 7), (64, 60, 63), (5, 64, 1, 90, 5, 6, 7, 8, 9, 66, 66)):
        sequences = sequences_for(name, lengths)
        for sequence in sequences[:-1]:
            sequence.token_ids[1::5] = 1  # RoBERTa and its kin do not count this one
        states = forward(pack(*sequences)).split(list(lengths))
        for sequence, own in zip(sequences, states, strict=True):
            expected = reference_hidden_states(name, model, sequence)
            assert relative_error(own, expected) < TOLERANCE, (lengths, sequence.num_tokens)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_vectors_of_whole_texts(checkpoint: tuple[str, Any, Path], pooling: str) -> None:
    name, model, folder = checkpoint
    engine = load(folder, config=OPENVINO, pooling=pooling)
    sequences = sequences_for(name, (20, 20, 3, 19, 17, 150))
    vectors = vectors_of(engine, pack(*sequences))
    for sequence, vector in zip(sequences, vectors, strict=True):
        states = reference_hidden_states(name, model, sequence)
        expected = {"cls": states[0], "last": states[-1], "mean": states.mean(0)}[pooling]
        np.testing.assert_allclose(vector, expected.numpy(), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dimensions", [0, 16])
def test_what_a_caller_wants_of_a_vector_is_torchs(bert: Path, normalize: bool, dimensions: int) -> None:
    mixed = [
        make_sequence(random_ids(9), normalize=normalize, dimensions=dimensions),
        make_sequence(random_ids(8, seed=1)),
        make_sequence(random_ids(40, seed=2), pool_spans=np.array([[1, 5], [0, 40]], np.int32)),
    ]
    for batch in (pack(*mixed[:1]), pack(*mixed[:2]), pack(*mixed)):
        of_both = [vectors_of(load(bert, config=config), batch) for config in (OPENVINO, TORCH)]
        np.testing.assert_allclose(*of_both, atol=1e-5, rtol=1e-5)


def test_bfloat16(checkpoint: tuple[str, Any, Path]) -> None:
    name, model, folder = checkpoint
    engine = load(folder, config=EngineConfig(device="cpu", num_threads=1, dtype="bfloat16"))
    sequences = sequences_for(name, (1, 7, 64, MAX_LENGTH))
    assert engine.info.dtype == "bfloat16"
    for sequence, vector in zip(sequences, vectors_of(engine, pack(*sequences)), strict=True):
        expected = reference_hidden_states(name, model, sequence).mean(0, keepdim=True)
        assert cosine_error(torch.from_numpy(vector)[None], expected) < 1e-3


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3), (True, 3)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_attention_of_rows_is_that_of_sequences(causal: bool, window: int | None, has_bias: bool) -> None:
    lengths, num_heads, head_dim = (9, 4), 4, 8
    spec = AttentionSpec(
        num_heads=num_heads, num_kv_heads=2, head_dim=head_dim, causal=causal, window=window, relative_bias=has_bias
    )
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(sum(lengths), heads, head_dim, generator=generator) for heads in (num_heads, 2, 2))
    bias = torch.randn(num_heads, 2 * 20 - 1, generator=generator) if has_bias else None
    rows, packed = RowsAttention(spec), SdpaAttention(spec)
    (group,) = near_lengths(np.array(lengths, np.int32))
    rows.begin(*map(torch.from_numpy, (group.slots, group.padding, group.places)))
    packed.plan(pack(*(make_sequence(random_ids(length)) for length in lengths)).layout)
    torch.testing.assert_close(rows.forward(q, k, v, bias), packed.forward(q, k, v, bias), rtol=1e-5, atol=1e-5)


def test_an_id_that_is_none_fails_its_step_alone(bert: Path) -> None:
    engine = load(bert, config=OPENVINO)
    good = pack(make_sequence(random_ids(9)))
    expected = vectors_of(engine, good)
    for token_id in (-1, 10_000):
        with pytest.raises(StepFailed, match=r"token ids should lie in \[0, 300\)"):
            vectors_of(engine, pack(make_sequence(np.array([5, token_id], np.int32))))
    np.testing.assert_array_equal(vectors_of(engine, good), expected)


def test_torch_computes_where_openvino_does_not(
    bert: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(OpenVinoForward, "__init__", refuse)
    batch = pack(make_sequence(random_ids(9)))
    with caplog.at_level(logging.WARNING):
        engine = load(bert, config=EngineConfig(device="cpu", num_threads=1))
    assert "torch computes, since OpenVINO does not: no such operation" in caplog.text
    np.testing.assert_array_equal(vectors_of(engine, batch), vectors_of(load(bert, config=TORCH), batch))
    with pytest.raises(ConfigError, match="--cpu-backend openvino: RuntimeError: no such operation"):
        load(bert, config=OPENVINO)


def test_asked_for_by_name_it_has_to_be_installed(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rosebed.rose.openvino.forward", raising=False)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtra, match=r"--cpu-backend openvino.*rosebed\[cpu\]"):
        load(bert, config=OPENVINO)


def test_sdpa_is_torchs(bert: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load(bert, config=EngineConfig(device="cpu", num_threads=1, attention="sdpa"))
    assert "computed by torch, 1 thread" in caplog.text


def test_nobody_is_told_that_a_model_was_loaded(tmp_path: Path) -> None:
    """OpenVINO's package reports its import and conversions by itself, and keeps an id of the user for it."""
    script = "import sys; from rosebed import Embedder; Embedder(sys.argv[1]).embed(['a text']); "
    script += "assert 'openvino' in sys.modules; print([name for name in sys.modules if 'openvino_telemetry' in name])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(minilm(tmp_path))],
        env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.rglob("*openvino*")) == []
