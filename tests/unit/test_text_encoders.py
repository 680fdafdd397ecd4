"""Which library encodes: the faster one where it reads the file and agrees, else the one that defines the format."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from text_models import bert_folder, edit_tokenizer, qwen_folder, unigram_folder

from rosebed.text.encoders import Encoder, FastokensEncoder, SplintrEncoder, TokenizersEncoder, choose_encoder
from rosebed.text.loading import load_tokenizer
from rosebed.text.special_tokens import SpecialTokenTemplate

FASTER = [("fastokens", qwen_folder), ("splintr", unigram_folder)]
ENCODERS = [*FASTER, ("tokenizers", qwen_folder), ("tokenizers", unigram_folder)]

MakeFolder = Callable[[Path], Path]


def encoder(name: str, folder: Path) -> Encoder:
    tokenizer = load_tokenizer(folder, "")
    if name == "fastokens":
        return FastokensEncoder(folder / "tokenizer.json")
    if name == "splintr":
        return SplintrEncoder(folder / "tokenizer.json", SpecialTokenTemplate.probe(tokenizer, 1))
    return TokenizersEncoder(tokenizer)


def chosen(folder: Path) -> str:
    return choose_encoder(folder, load_tokenizer(folder, "bert")).name


@pytest.mark.parametrize(("name", "make"), [*FASTER, ("tokenizers", bert_folder)])
def test_each_kind_has_its_library(tmp_path: Path, name: str, make: MakeFolder) -> None:
    assert chosen(make(tmp_path)) == name


@pytest.mark.parametrize(("name", "make"), FASTER)
def test_the_faster_libraries_need_not_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: MakeFolder
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert chosen(make(tmp_path)) == "tokenizers"


def test_a_file_that_cannot_be_read_is_left_to_tokenizers(tmp_path: Path) -> None:
    folder = edit_tokenizer(qwen_folder(tmp_path), normalizer={"type": "StripAccents"})
    with pytest.raises(ValueError, match="unsupported"):
        FastokensEncoder(folder / "tokenizer.json")
    assert chosen(folder) == "tokenizers"


@pytest.mark.parametrize(("make", "kind"), [(qwen_folder, FastokensEncoder), (unigram_folder, SplintrEncoder)])
def test_other_ids_are_found_out_and_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    make: MakeFolder,
    kind: type[FastokensEncoder | SplintrEncoder],
) -> None:
    encode = kind.encode

    def one_short(self: FastokensEncoder | SplintrEncoder, texts: Sequence[str]) -> list[list[int]]:
        right = encode(self, texts)  # pyright: ignore[reportArgumentType]
        return [*right[:-1], right[-1][:-1]]

    monkeypatch.setattr(kind, "encode", one_short)
    with caplog.at_level(logging.WARNING):
        assert chosen(make(tmp_path)) == "tokenizers"
    assert f"{kind.name} gives other ids" in caplog.text


@pytest.mark.parametrize("name", ["fastokens", "tokenizers"])
def test_bytes_are_encoded_bare_and_in_order(tmp_path: Path, name: str) -> None:
    found = encoder(name, qwen_folder(tmp_path)).encode(["!", '"#', "", "!<|endoftext|>"])
    assert found == [[0], [1, 2], [], [0, 256]]


@pytest.mark.parametrize("name", ["splintr", "tokenizers"])
def test_pieces_are_encoded_bare_and_in_order(tmp_path: Path, name: str) -> None:
    found = encoder(name, unigram_folder(tmp_path)).encode(["a", "ab b", "", "a</s>", "<s>", "bab"])
    assert found == [[4], [4, 6, 3, 6], [], [4, 1], [0], [3, 6, 7]]


@pytest.mark.parametrize(("name", "make"), ENCODERS)
def test_no_texts(tmp_path: Path, name: str, make: MakeFolder) -> None:
    assert encoder(name, make(tmp_path)).encode([]) == []


@pytest.mark.parametrize(("name", "make"), ENCODERS)
def test_the_files_truncation_and_padding_are_off(tmp_path: Path, name: str, make: MakeFolder) -> None:
    folder = make(tmp_path)
    texts = ["!" * 12, "a", "a" * 12]
    expected = encoder("tokenizers", folder).encode(texts)
    tokenizer = load_tokenizer(folder, "")
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9, pad_id=2)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert encoder(name, folder).encode(texts) == expected


@pytest.mark.parametrize(("name", "make"), ENCODERS)
@pytest.mark.parametrize("wrong", ["a\ud800", None, 3])
def test_what_is_no_text_raises(tmp_path: Path, name: str, make: MakeFolder, wrong: str) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        encoder(name, make(tmp_path)).encode(["a", wrong])
