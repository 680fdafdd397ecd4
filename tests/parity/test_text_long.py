"""Heads of long texts on real tokenizers: their ids are the first of the whole text's, as `tokenizers` makes them."""

from pathlib import Path

import numpy as np
import pytest
import text_assets
from hypothesis import given, settings
from hypothesis import strategies as st

from rosebed.text.boundaries import splits_at_blanks
from rosebed.text.encoders import Encoder, TokenizersEncoder, choose_encoder
from rosebed.text.heads import encode_heads
from rosebed.text.loading import load_tokenizer

HOSTILE = (
    "hello", "  ", "\n", "\t", "\u0301", "\u0323\u0301", "ﾞ", "ｶ", "ำ", "ก", "ൎ", "क्ष", "가", "\u1161", "\u200d", "👍🏽",
    "哈", "İ", "ﬁ", "1", "23", "'s", "-=", "...", "<mask>", "<s>", "[SEP]", "<|endoftext|>", "a" * 40, "é", "Σ",
    "\x00", "\ufeff",
)  # fmt: skip
WANTED = 6


def folder_of(name: str, folder: Path) -> Path:
    match name:
        case "xlm_r":
            return text_assets.xlm_r(folder)
        case "qwen3":
            return text_assets.qwen3(folder, appends_end=True)
        case _:
            return text_assets.minilm()


@pytest.fixture(scope="module", params=["minilm", "xlm_r", "qwen3"])
def encoders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Encoder]:
    """The one in use, and the reference."""
    folder = folder_of(request.param, tmp_path_factory.mktemp("model"))
    tokenizer = load_tokenizer(folder, "bert")
    assert splits_at_blanks(tokenizer)
    return choose_encoder(folder, tokenizer), TokenizersEncoder(tokenizer)


def check(encoders: tuple[Encoder, Encoder], text: str) -> bool:
    """Whether only a head was encoded."""
    used, reference = encoders
    (found,) = encode_heads(used, [text], WANTED)
    (whole,) = reference.encode([text])
    assert found.ids == whole[: len(found.ids)]
    assert found.is_head or found.ids == whole
    return found.is_head


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), blanks=st.sampled_from([0.0, 0.3, 0.6]))
def test_hostile_pieces_in_any_order(encoders: tuple[Encoder, Encoder], seed: int, blanks: float) -> None:
    rng = np.random.default_rng(seed)
    pieces = [HOSTILE[i] for i in rng.integers(0, len(HOSTILE), 2500)]
    check(encoders, "".join(piece + (" " if rng.random() < blanks else "") for piece in pieces))


@pytest.mark.parametrize("unit", ["a", "0", "ha", "哈", "-", "\u0301", "👍🏽", " ", "\n", "<mask> ", "- "])
def test_runs_that_cannot_be_cut_are_encoded_whole(encoders: tuple[Encoder, Encoder], unit: str) -> None:
    for extra in range(5):
        assert not check(encoders, unit * (5000 // len(unit)) + unit * extra)


def test_words_are_cut(encoders: tuple[Encoder, Encoder]) -> None:
    for text in ("the quick brown fox " * 1000, "быстрая лиса " * 1000, "안녕 하세요 " * 1000, "x1 2y " * 2000):
        assert check(encoders, text)
    check(encoders, "a" + "\u0301" * 6000 + "\u0323 and so on" * 900)
