"""Pairs of texts as one sequence: segments, and which text gives way."""

from pathlib import Path

import pytest
from core_folders import XLM_R
from hypothesis import given
from hypothesis import strategies as st
from text_models import WORDS, bert, bert_folder, qwen

from rosebed.core.errors import ContextLengthExceeded, InvalidInput
from rosebed.text.loading import load_tokenizer
from rosebed.text.tokenizer import PairCut, Side, TextTokenizer, TokenizeOptions
from rosebed.text.truncation import share


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return bert(tmp_path_factory.mktemp("bert"))


def types(result: object) -> list[int]:
    value = getattr(result, "token_type_ids", None)
    assert value is not None
    return value.tolist()


def test_the_second_segment_ends_with_its_separator(tokenizer: TextTokenizer) -> None:
    first, second = tokenizer.tokenize_pairs([("a b", "c"), ("", "d e")])
    assert first.token_ids.tolist() == [2, 6, 7, 3, 8, 3]
    assert types(first) == [0, 0, 0, 0, 1, 1]
    assert first.pool_spans.tolist() == [[0, 6]]
    assert second.token_ids.tolist() == [2, 3, 9, 10, 3]
    assert types(second) == [0, 0, 1, 1, 1]


def test_without_special_tokens_all_is_one_segment(tokenizer: TextTokenizer) -> None:
    result = tokenizer.tokenize_pairs([("a", "b")], TokenizeOptions(add_special_tokens=False))[0]
    assert result.token_ids.tolist() == [6, 7]
    assert result.token_type_ids is None


def test_a_model_without_segments_gets_none(tmp_path: Path) -> None:
    files = {"config.json": XLM_R | {"vocab_size": len(WORDS), "type_vocab_size": 1}}
    assert bert(tmp_path / "xlm", files).tokenize_pairs([("a", "b")])[0].token_type_ids is None
    assert qwen(tmp_path / "qwen").tokenize_pairs([("a", "b")])[0].token_type_ids is None


def test_the_prompt_goes_before_the_first_text(tokenizer: TextTokenizer) -> None:
    result = tokenizer.tokenize_pairs([("a", "b")], TokenizeOptions(prompt="query: "))[0]
    assert result.token_ids.tolist() == [2, 11, 12, 6, 3, 7, 3]


@pytest.mark.parametrize(
    ("pair", "limit", "cut", "side", "expected"),
    [
        (("a", "b c d e"), 6, PairCut.LONGEST_FIRST, Side.RIGHT, [2, 6, 3, 7, 8, 3]),
        (("a", "b c d e"), 6, PairCut.LONGEST_FIRST, Side.LEFT, [2, 6, 3, 9, 10, 3]),
        (("b c d e", "a"), 6, PairCut.LONGEST_FIRST, Side.RIGHT, [2, 7, 8, 3, 6, 3]),
        (("a b c d", "b c d e"), 8, PairCut.LONGEST_FIRST, Side.RIGHT, [2, 6, 7, 3, 7, 8, 9, 3]),
        (("a b c d", "b c d"), 8, PairCut.LONGEST_FIRST, Side.RIGHT, [2, 6, 7, 8, 3, 7, 8, 3]),
        (("a b c", "b c d e"), 8, PairCut.SECOND, Side.RIGHT, [2, 6, 7, 8, 3, 7, 8, 3]),
        (("a b c", "b c d e"), 8, PairCut.SECOND, Side.LEFT, [2, 6, 7, 8, 3, 9, 10, 3]),
        (("a b c", "b"), 6, PairCut.SECOND, Side.RIGHT, [2, 6, 7, 8, 3, 3]),
        (("a b c", "b"), 3, PairCut.LONGEST_FIRST, Side.RIGHT, [2, 3, 3]),
    ],
)
def test_cutting(
    tokenizer: TextTokenizer, pair: tuple[str, str], limit: int, cut: PairCut, side: Side, expected: list[int]
) -> None:
    options = TokenizeOptions(truncate=True, truncate_to=limit, pair_cut=cut, side=side)
    result = tokenizer.tokenize_pairs([pair], options)[0]
    assert result.token_ids.tolist() == expected
    split = expected.index(3) + 1
    assert types(result) == [0] * split + [1] * (len(expected) - split)
    assert result.num_tokens_before == len(pair[0].split()) + len(pair[1].split()) + 3


def test_a_query_over_the_limit_is_refused_where_only_the_document_may_be_cut(tokenizer: TextTokenizer) -> None:
    options = TokenizeOptions(truncate=True, truncate_to=5, pair_cut=PairCut.SECOND)
    with pytest.raises(ContextLengthExceeded, match=r"^input\[1\]\[0\] alone takes 6 tokens, over") as caught:
        tokenizer.tokenize_pairs([("a", "b"), ("a b c", "d")], options)
    assert caught.value.param == "input[1][0]"


def test_too_long_is_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"^input\[1\] has 303 tokens, over the limit of 256"):
        tokenizer.tokenize_pairs([("a", "b"), ("a " * 100, "b " * 200)])


def test_a_first_text_that_no_second_fits_beside_is_refused_itself(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"^input\[1\]\[0\] alone takes 257 tokens, over") as caught:
        tokenizer.tokenize_pairs([("a " * 253, ""), ("a " * 254, "b")])
    assert caught.value.param == "input[1][0]"


@pytest.mark.parametrize(("pair", "place"), [(("\ud800", "a"), 0), (("a", "\ud800"), 1)])
def test_lone_surrogates_on_either_side(tokenizer: TextTokenizer, pair: tuple[str, str], place: int) -> None:
    with pytest.raises(InvalidInput, match=rf"input\[1\]\[{place}\] is not valid Unicode"):
        tokenizer.tokenize_pairs([("a", "b"), pair])


def test_both_sides_are_lowered(tmp_path: Path) -> None:
    files = {
        "tokenizer_config.json": {"do_lower_case": False},
        "sentence_bert_config.json": {"do_lower_case": True},
    }
    result = bert(tmp_path, files).tokenize_pairs([("A", "Ä")])[0]
    assert result.token_ids.tolist() == [2, 6, 3, 14, 3]


@pytest.fixture(scope="module")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("library"))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(3, 40), st.sampled_from(Side))
def test_cut_as_the_library_cuts(
    tokenizer: TextTokenizer, library_folder: Path, first: int, second: int, limit: int, side: Side
) -> None:
    library = load_tokenizer(library_folder, "bert")
    library.enable_truncation(limit, strategy="longest_first", direction=side.value)
    pair = ("a b c d e " * 6)[: 2 * first], ("e d c b a " * 6)[: 2 * second]
    expected = library.encode(*pair)
    result = tokenizer.tokenize_pairs([pair], TokenizeOptions(truncate=True, truncate_to=limit, side=side))[0]
    assert result.token_ids.tolist() == expected.ids
    assert types(result) == expected.type_ids


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.sampled_from(PairCut))
def test_shares(first: int, second: int, room: int, cut: PairCut) -> None:
    kept_first, kept_second = share(first, second, room, cut)
    assert kept_first + kept_second == min(first + second, room)
    assert kept_first <= first
    assert kept_second <= second
    if cut is PairCut.SECOND:
        assert kept_first == first
    elif first + second > room:
        assert kept_first >= 0
        assert kept_second >= 0
        assert abs(kept_first - kept_second) <= 1 or (kept_first, kept_second)[first > second] == min(first, second)
