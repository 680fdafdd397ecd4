"""Logits of every architecture that scores, against transformers in float32 and on a CPU engine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rose_checkpoints import MAX_LENGTH, make_sequence, pack, random_ids, rewrite_json
from safetensors.torch import load_file, save_file
from scorer_checkpoints import CONFIGS, LANGUAGE_MODELS, NO, YES, reference_logits, write_scorer

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import CheckpointError
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Float32Array, OutputKind, Sequence
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine

LENGTHS = (7, MAX_LENGTH, 2, 64, 1, 33)
LOGITS = frozenset({OutputKind.LOGITS})
TOLERANCE = 1e-5


def load(folder: Path, *, dtype: Any = "float32") -> CpuEngine:
    spec = resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(task="score"))
    engine = load_engine(spec, EngineConfig(device="cpu", num_threads=1, dtype=dtype))
    assert isinstance(engine, CpuEngine)
    return engine


def pairs(name: str, lengths: tuple[int, ...] = LENGTHS) -> list[Sequence]:
    """Sequences whose later part is of segment 1, where the model has segments."""
    sequences = [make_sequence(random_ids(length, seed=length), outputs=LOGITS) for length in lengths]
    if not name.startswith("bert"):
        return sequences
    types = [(np.arange(length) >= length // 3).astype(np.int32) for length in lengths]
    return [replace(sequence, token_type_ids=own) for sequence, own in zip(sequences, types, strict=True)]


def logits(engine: CpuEngine, sequences: list[Sequence]) -> Float32Array:
    lazy = engine.step(pack(*sequences))
    try:
        result = lazy.result()
        assert (result.status == 0).all()
        return result.output(OutputKind.LOGITS).copy()
    finally:
        lazy.release()


@pytest.fixture(scope="module", params=CONFIGS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, write_scorer(request.param, folder), folder


def test_logits_as_transformers(checkpoint: tuple[str, Any, Path]) -> None:
    name, model, folder = checkpoint
    engine = load(folder)
    sequences = pairs(name)
    expected = np.stack([reference_logits(name, model, sequence) for sequence in sequences])
    assert engine.info.outputs == {OutputKind.LOGITS: OutputSpec(rows_per=RowsPer.SEQUENCE, dim=expected.shape[1])}
    together = logits(engine, sequences)
    np.testing.assert_allclose(together, expected, atol=TOLERANCE)
    assert np.ptp(expected, axis=0).min() > 0.01  # they do depend on what is read
    for index, sequence in enumerate(sequences):
        np.testing.assert_allclose(logits(engine, [sequence])[0], together[index], atol=TOLERANCE)


def test_warm_up_asks_for_what_there_is(checkpoint: tuple[str, Any, Path]) -> None:
    engine = load(checkpoint[2])
    engine.warm_up()
    assert engine.info.main_output == LOGITS


def test_bfloat16(checkpoint: tuple[str, Any, Path]) -> None:
    name, model, folder = checkpoint
    sequences = pairs(name)
    expected = np.stack([reference_logits(name, model, sequence) for sequence in sequences])
    np.testing.assert_allclose(
        logits(load(folder, dtype="bfloat16"), sequences), expected, atol=0.05 * np.abs(expected).max()
    )


def test_segments_count(tmp_path: Path) -> None:
    write_scorer("bert", tmp_path)
    engine = load(tmp_path)
    (sequence,) = pairs("bert", (33,))
    assert abs(logits(engine, [sequence]) - logits(engine, [replace(sequence, token_type_ids=None)])).max() > 0.01


def test_only_those_that_ask_get_rows(tmp_path: Path) -> None:
    model = write_scorer("qwen3_score", tmp_path)
    sequences = pairs("qwen3_score", (5, 9, 4))
    sequences[1] = replace(sequences[1], outputs=frozenset())
    result = load(tmp_path).step(pack(*sequences)).result()
    assert [len(result.rows(OutputKind.LOGITS, index)) for index in range(3)] == [1, 0, 1]
    expected = reference_logits("qwen3_score", model, sequences[2])
    np.testing.assert_allclose(result.rows(OutputKind.LOGITS, 2)[0], expected, atol=TOLERANCE)


def test_padding_at_the_end_is_not_what_a_score_reads(tmp_path: Path) -> None:
    """transformers takes the last token that is not padding, and the first where all are."""
    model = write_scorer("qwen3_score", tmp_path)
    sequences = pairs("qwen3_score", (6, 4, 5))
    sequences[0].token_ids[3:] = 0
    sequences[1].token_ids[:] = 0
    expected = np.stack([reference_logits("qwen3_score", model, sequence) for sequence in sequences])
    np.testing.assert_allclose(logits(load(tmp_path), sequences), expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", sorted(LANGUAGE_MODELS))
def test_odds_are_the_softmax_of_yes_and_no(name: str, tmp_path: Path) -> None:
    model = write_scorer(name, tmp_path)
    (sequence,) = pairs(name, (20,))
    with torch.inference_mode():
        answers = model(torch.from_numpy(sequence.token_ids).long()[None]).logits[0, -1, [NO, YES]]
    expected = torch.log_softmax(answers, dim=0)[1].exp().item()
    odds = logits(load(tmp_path), [sequence]).item()
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(expected, abs=1e-6)


def test_answers_that_the_checkpoint_names(tmp_path: Path) -> None:
    model = write_scorer("qwen3", tmp_path)
    (tmp_path / "modules.json").write_text(
        '[{"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},'
        '{"idx": 1, "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.LogitScore"}]'
    )
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text('{"true_token_id": 5, "false_token_id": 9}')
    (sequence,) = pairs("qwen3", (20,))
    with torch.inference_mode():
        answers = model(torch.from_numpy(sequence.token_ids).long()[None]).logits[0, -1]
    np.testing.assert_allclose(logits(load(tmp_path), [sequence])[0, 0], answers[5] - answers[9], atol=TOLERANCE)


def rewrite_tensors(folder: Path, *, without: str = "", more: dict[str, torch.Tensor] | None = None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(without, None)
    save_file(tensors | (more or {}), folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("bert", "classifier.weight"),
        ("bert", "bert.pooler.dense.bias"),
        ("xlm_roberta", "classifier.out_proj.weight"),
        ("qwen3_score", "score.weight"),
        ("qwen3_untied", "lm_head.weight"),
        ("qwen3", "model.embed_tokens.weight"),
    ],
)
def test_a_missing_tensor_is_named(name: str, missing: str, tmp_path: Path) -> None:
    write_scorer(name, tmp_path)
    rewrite_tensors(tmp_path, without=missing)
    with pytest.raises(CheckpointError, match=missing.replace(".", r"\.")):
        load(tmp_path)


def test_tensors_too_many_are_named(tmp_path: Path) -> None:
    write_scorer("xlm_roberta", tmp_path)
    rewrite_tensors(tmp_path, more={"classifier.extra.weight": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"does not compute with: classifier\.extra\.weight"):
        load(tmp_path)


def test_labels_that_are_not_those_of_the_weights(tmp_path: Path) -> None:
    write_scorer("bert_3", tmp_path)
    rewrite_json(tmp_path / "config.json", {"id2label": {"0": "no", "1": "yes"}})
    with pytest.raises(CheckpointError, match=r"classifier\.weight has shape \[3, 64\], but config\.json asks for \[2"):
        load(tmp_path)


def test_answers_without_a_word(tmp_path: Path) -> None:
    write_scorer("qwen3", tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"no": 17}}}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json lacks a token of no, yes"):
        load(tmp_path)
