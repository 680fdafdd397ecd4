"""The memory of words: the library's ids, whatever was met before, at the cost that it promises."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, Whitespace

from rosebed.text import words
from rosebed.text.encoders import TokenizersEncoder
from rosebed.text.words import WordMemory

TOKENS = ["[UNK]", "[CLS]", "a", "b", "c", "##a", "##b", "##c", "ab", "A", "B", "0", "##0", "!", "[", "]", "-", "x"]


def bert(*, lowers: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(WordPiece({token: place for place, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowers)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(["[CLS]"])
    return tokenizer


class Library:
    """The library, and what it was asked."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.asked: list[list[str]] = []
        self._encoder = TokenizersEncoder(tokenizer)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.asked.append(list(texts))
        return self._encoder.encode(texts)


@pytest.fixture
def library() -> Library:
    return Library(bert())


@pytest.fixture
def memory(library: Library) -> WordMemory:
    return WordMemory(bert(), library.encode)


PIECES = [
    "a",
    "b",
    "ab",
    "cab",
    "A",
    "B0",
    "x",
    "z",
    "[CLS]",
    "[cls]",
    "[",
    " ",
    "\t",
    "\r\n",
    "!",
    "-",
    "~",
    "\x7f",
    "ä",
]
TEXT = st.lists(st.sampled_from(PIECES) | st.characters(codec="ascii"), max_size=20).map("".join)


@pytest.mark.parametrize("lowers", [True, False])
@given(texts=st.lists(TEXT, max_size=8))
def test_the_ids_are_the_librarys(lowers: bool, texts: list[str]) -> None:
    tokenizer = bert(lowers=lowers)
    memory, library = WordMemory(tokenizer, TokenizersEncoder(tokenizer).encode), TokenizersEncoder(tokenizer)
    for text in [*texts, *texts]:
        assert memory.encode([text]) == library.encode([text])


def test_words_of_the_vocabulary_are_known(memory: WordMemory, library: Library) -> None:
    assert memory.encode(["Ab a-b\n!"]) == [[8, 2, 16, 3, 13]]
    assert library.asked == []


def test_another_word_is_asked_for_once(memory: WordMemory, library: Library) -> None:
    assert memory.encode(["Ab a b c CA ab"]) == [[8, 2, 3, 4, 4, 5, 8]]
    assert memory.encode(["ca ab Ca"]) == [[4, 5, 8, 4, 5]]
    assert library.asked == [["ca"]]


def test_what_was_returned_may_be_changed(memory: WordMemory) -> None:
    for _ in range(3):
        for text in ("ab", "cc"):
            memory.encode([text])[0].append(7)
    assert memory.encode(["ab cc"]) == [[8, 4, 7]]


def test_a_text_of_many_new_words_is_encoded_once_as_it_is(memory: WordMemory, library: Library) -> None:
    assert memory.encode(["aa bbz! cab a"]) == [[2, 5, 0, 13, 4, 5, 6, 2]]
    assert memory.encode(["cab"]) == [[4, 5, 6]]
    assert memory.encode(["bbz aa"]) == [[0, 2, 5]]
    assert library.asked == []


@pytest.mark.parametrize("texts", [["ä"], ["a\x00b"], ["a" * 3000], ["a [CLS] b"], ["a[cls]"], ["a", "b"], []])
def test_what_is_left_to_the_library(memory: WordMemory, library: Library, texts: list[str]) -> None:
    assert memory.encode(texts) == library.encode(texts)
    assert library.asked == [texts, texts]


def test_long_words_are_not_kept(memory: WordMemory, library: Library) -> None:
    text = f"a a a a a {'b' * 33}"
    assert memory.encode([text]) == memory.encode([text]) == [[*[2] * 5, 3, *[6] * 32]]
    assert library.asked == [["b" * 33], ["b" * 33]]


def test_a_full_memory_starts_anew(memory: WordMemory, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 2)
    for word in ("aa", "bb", "cc", "cc", "aa", "a"):
        memory.encode([f"a a a a a {word}"])
    assert library.asked == [["aa"], ["bb"], ["cc"], ["aa"]]


def test_words_too_long_for_the_model_are_not_known() -> None:
    model = WordPiece({"[UNK]": 0, "abc": 1, "ab": 2}, unk_token="[UNK]", max_input_chars_per_word=2)
    tokenizer = bert()
    tokenizer.model = model  # pyright: ignore[reportAttributeAccessIssue]
    memory = WordMemory(tokenizer, TokenizersEncoder(tokenizer).encode)
    assert memory.encode(["ab abc"]) == TokenizersEncoder(tokenizer).encode(["ab abc"]) == [[2, 0]]


@pytest.mark.parametrize(("text", "error"), [(b"a", TypeError), (7, TypeError), ("\ud800", TypeError)])
def test_what_is_no_text(memory: WordMemory, text: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        memory.encode([text])


def _other_pre_tokenizer(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = Whitespace()


def _other_normalizer(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = None  # pyright: ignore[reportAttributeAccessIssue]


def _odd_token(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens(["a b"])


@pytest.mark.parametrize("change", [_other_pre_tokenizer, _other_normalizer, _odd_token])
def test_other_tokenizers_are_refused(change: Callable[[Tokenizer], None]) -> None:
    tokenizer = bert()
    change(tokenizer)
    with pytest.raises(ValueError, match="word"):
        WordMemory(tokenizer, TokenizersEncoder(tokenizer).encode)
