"""Which library encodes: the faster one where it reads the file and agrees, else the one that defines the format."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from text_models import bert_folder, edit_tokenizer, qwen_folder

from rosebed.text.encoders import Encoder, FastokensEncoder, TokenizersEncoder, choose_encoder
from rosebed.text.loading import load_tokenizer

ENCODERS = [FastokensEncoder, TokenizersEncoder]


def encoder(folder: Path, kind: type) -> Encoder:
    path = qwen_folder(folder)
    return (
        FastokensEncoder(path / "tokenizer.json")
        if kind is FastokensEncoder
        else TokenizersEncoder(load_tokenizer(path, "qwen3"))
    )


def chosen(folder: Path) -> str:
    return choose_encoder(folder, load_tokenizer(folder, "bert")).name


def test_byte_level_bpe_is_encoded_by_fastokens(tmp_path: Path) -> None:
    assert chosen(qwen_folder(tmp_path)) == "fastokens"


def test_word_pieces_are_encoded_by_tokenizers(tmp_path: Path) -> None:
    assert chosen(bert_folder(tmp_path)) == "tokenizers"


def test_fastokens_need_not_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    assert chosen(qwen_folder(tmp_path)) == "tokenizers"


def test_a_file_that_fastokens_cannot_read_is_left_to_tokenizers(tmp_path: Path) -> None:
    folder = edit_tokenizer(qwen_folder(tmp_path), normalizer={"type": "StripAccents"})
    with pytest.raises(ValueError, match="unsupported"):
        FastokensEncoder(folder / "tokenizer.json")
    assert chosen(folder) == "tokenizers"


def test_other_ids_are_found_out_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encode = FastokensEncoder.encode

    def off_by_one(self: FastokensEncoder, texts: Sequence[str]) -> list[list[int]]:
        right = encode(self, texts)
        return [*right[:-1], right[-1][:-1]]

    monkeypatch.setattr(FastokensEncoder, "encode", off_by_one)
    with caplog.at_level(logging.WARNING):
        assert chosen(qwen_folder(tmp_path)) == "tokenizers"
    assert "fastokens gives other ids" in caplog.text


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoding_is_bare_and_in_order(tmp_path: Path, kind: type) -> None:
    assert encoder(tmp_path, kind).encode(["!", '"#', "", "!<|endoftext|>"]) == [[0], [1, 2], [], [0, 256]]
    assert encoder(tmp_path, kind).encode([]) == []


@pytest.mark.parametrize("kind", ENCODERS)
def test_the_files_truncation_and_padding_are_off(tmp_path: Path, kind: type) -> None:
    tokenizer = load_tokenizer(qwen_folder(tmp_path), "qwen3")
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9, pad_id=256)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "tokenizer.json"
    found = FastokensEncoder(path) if kind is FastokensEncoder else TokenizersEncoder(load_tokenizer(tmp_path, "qwen3"))
    assert found.encode(["!" * 12, "!"]) == [[0] * 12, [0]]


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("wrong", ["a\ud800", None, 3])
def test_what_is_no_text_raises(tmp_path: Path, kind: type, wrong: str) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        encoder(tmp_path, kind).encode(["a", wrong])
