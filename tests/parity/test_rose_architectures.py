"""Every architecture against transformers in float32, per token, on checkpoints that transformers wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rose_checkpoints import (
    CONFIGS,
    MAX_LENGTH,
    cosine_error,
    make_sequence,
    pack,
    random_ids,
    random_model,
    reference_hidden_states,
    relative_error,
    spec_of,
    write_checkpoint,
)

from rosebed.core.types import Batch, Sequence
from rosebed.rose.attention.registry import create_attention
from rosebed.rose.loader import LoadedModel, load_model
from rosebed.rose.ops import onednn, reference
from rosebed.rose.ops.base import Ops

LENGTHS = (1, 2, 7, 63, 64, 65, MAX_LENGTH)
TOLERANCE = 1e-5


def load(folder: Path, dtype: torch.dtype = torch.float32, ops: Ops = reference) -> LoadedModel:
    loaded = load_model(spec_of(folder), ops, device=torch.device("cpu"), dtype=dtype)
    if ops is onednn:
        onednn.pack(loaded.model)
    return loaded


@torch.inference_mode()
def hidden_states(loaded: LoadedModel, batch: Batch) -> list[torch.Tensor]:
    """[num_tokens, hidden] of each sequence."""
    attention = create_attention("sdpa", loaded.model.attention_spec)
    attention.plan(batch.layout)
    types = None if batch.token_type_ids is None else torch.from_numpy(batch.token_type_ids)
    ids = torch.from_numpy(batch.token_ids)
    positions = torch.from_numpy(loaded.model.positions(batch.layout, batch.token_ids))
    packed = loaded.model(ids, positions, types, attention)
    return list(packed.float().split(np.diff(batch.layout.cu_seqlens).tolist()))


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, write_checkpoint(request.param, folder), folder


def sequences_for(name: str, lengths: tuple[int, ...]) -> list[Sequence]:
    has_types = name.startswith("bert")
    rng = np.random.default_rng(1)
    return [
        make_sequence(
            random_ids(length, seed=index),
            token_type_ids=rng.integers(0, 2, length, dtype=np.int32) if has_types and index % 2 else None,
        )
        for index, length in enumerate(lengths)
    ]


def assert_equal(name: str, model: Any, sequences: list[Sequence], actual: list[torch.Tensor]) -> None:
    for sequence, states in zip(sequences, actual, strict=True):
        expected = reference_hidden_states(name, model, sequence)
        assert relative_error(states, expected) < TOLERANCE, sequence.num_tokens
        assert cosine_error(states, expected) < TOLERANCE, sequence.num_tokens


@pytest.mark.parametrize("length", LENGTHS)
def test_one_sequence(checkpoint: tuple[str, Any, Path], length: int) -> None:
    name, model, folder = checkpoint
    sequences = sequences_for(name, (length, length))
    loaded = load(folder)
    for sequence in sequences:
        assert_equal(name, model, [sequence], hidden_states(loaded, pack(sequence)))


@pytest.mark.parametrize("ops", [reference, onednn])
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[::-1], (5, 64, 1, 90, 5, 6, 7, 8, 9, 66, 66), (1,) * 9])
def test_mixture(checkpoint: tuple[str, Any, Path], lengths: tuple[int, ...], ops: Ops) -> None:
    name, model, folder = checkpoint
    sequences = sequences_for(name, lengths)
    assert_equal(name, model, sequences, hidden_states(load(folder, ops=ops), pack(*sequences)))


def test_padding_tokens_in_the_text(checkpoint: tuple[str, Any, Path]) -> None:
    """Of RoBERTa and its kin they have a position of their own, and are not counted."""
    name, model, folder = checkpoint
    sequences = sequences_for(name, (9, 1, 7, MAX_LENGTH, 5))
    for sequence in sequences[:-1]:
        sequence.token_ids[::3] = 1
        sequence.token_ids[1::5] = 0
    loaded = load(folder)
    assert_equal(name, model, sequences, hidden_states(loaded, pack(*sequences)))
    for sequence in sequences:
        assert_equal(name, model, [sequence], hidden_states(loaded, pack(sequence)))


@pytest.mark.parametrize("ops", [reference, onednn])
def test_bfloat16(checkpoint: tuple[str, Any, Path], ops: Ops) -> None:
    name, model, folder = checkpoint
    sequences = sequences_for(name, LENGTHS)
    for sequence, states in zip(
        sequences, hidden_states(load(folder, torch.bfloat16, ops), pack(*sequences)), strict=True
    ):
        assert cosine_error(states, reference_hidden_states(name, model, sequence)) < 1e-3


def test_xlm_roberta_takes_8192_tokens(tmp_path: Path) -> None:
    config = transformers.XLMRobertaConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=8194,
        pad_token_id=1,
        type_vocab_size=1,
    )
    model = random_model(config)
    model.save_pretrained(tmp_path)
    assert spec_of(tmp_path).max_length == 8192
    sequences = [make_sequence(random_ids(8192)), make_sequence(random_ids(3))]
    assert_equal("xlm_roberta", model, sequences, hidden_states(load(tmp_path), pack(*sequences)))
