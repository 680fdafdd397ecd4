"""Chunks of documents to one sequence each: spans, separators, special tokens, refusals."""

from pathlib import Path

import pytest
from core_folders import PPLX, write_folder
from hypothesis import given
from hypothesis import strategies as st
from text_models import EOS, bert, qwen_folder, spec_of

from rosebed.core.errors import CheckpointError, ContextLengthExceeded, InvalidInput
from rosebed.text.chunks import join_chunks
from rosebed.text.tokenizer import TextTokenizer, TokenizedInput, TokenizeOptions

SEPARATOR = "<|endoftext|>"
CONTEXTUAL = PPLX | {"vocab_size": 257, "auto_map": {"AutoModel": "modeling.PPLXQwen3ContextualModel"}}

Chunks = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return bert(tmp_path_factory.mktemp("bert"), max_length=12)


@pytest.fixture(scope="module")
def contextual(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    folder = qwen_folder(tmp_path_factory.mktemp("pplx"), appends_eos=False)
    return TextTokenizer.load(spec_of(write_folder(folder, {"config.json": CONTEXTUAL})))


def of_spans(document: TokenizedInput) -> list[list[int]]:
    """The ids that each span covers."""
    return [document.token_ids[start:stop].tolist() for start, stop in document.pool_spans.tolist()]


@given(Chunks, st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), max_size=2))
def test_each_span_covers_its_chunk_and_nothing_is_lost(
    chunks: list[list[int]], before: list[int], separator: list[int]
) -> None:
    joined, spans = join_chunks(chunks, before=before, separator=separator)
    assert [joined[start:stop] for start, stop in spans.tolist()] == chunks
    assert len(joined) == len(before) + sum(map(len, chunks)) + len(separator) * (len(chunks) - 1)
    assert spans.dtype.name == "int32"


def test_one_prefix_and_suffix_a_document(ordinary: TextTokenizer) -> None:
    first, second = ordinary.tokenize_documents([["a b", "c", "d e"], ["a"]])
    assert first.token_ids.tolist() == [2, 6, 7, 8, 9, 10, 3]
    assert of_spans(first) == [[6, 7], [8], [9, 10]]
    assert (second.token_ids.tolist(), of_spans(second)) == ([2, 6, 3], [[6]])


def test_a_prompt_stands_before_the_first_chunk(ordinary: TextTokenizer) -> None:
    (document,) = ordinary.tokenize_documents([["a", "b"]], TokenizeOptions(prompt="query: "))
    assert document.token_ids.tolist() == [2, 11, 12, 6, 7, 3]
    assert of_spans(document) == [[6], [7]]


def test_special_tokens_may_be_left_out(ordinary: TextTokenizer) -> None:
    (document,) = ordinary.tokenize_documents([["a", "b"]], TokenizeOptions(add_special_tokens=False))
    assert (document.token_ids.tolist(), of_spans(document)) == ([6, 7], [[6], [7]])


def test_contextual_models_have_their_separator_between_chunks(contextual: TextTokenizer) -> None:
    (document,) = contextual.tokenize_documents([["ab", "c", "d"]])
    whole = contextual.tokenize([SEPARATOR.join(["ab", "c", "d"])])[0]
    assert document.token_ids.tolist() == whole.token_ids.tolist()
    assert document.token_ids.tolist().count(EOS) == 2
    assert [len(ids) for ids in of_spans(document)] == [2, 1, 1]
    assert all(EOS not in ids for ids in of_spans(document))


def test_a_separator_in_a_text_makes_no_chunk(contextual: TextTokenizer) -> None:
    (document,) = contextual.tokenize_documents([[f"a{SEPARATOR}b", "c"]])
    (plain,) = contextual.tokenize_documents([["ab", "c"]])
    assert [len(ids) for ids in of_spans(document)] == [3, 1]
    assert of_spans(document)[1] == of_spans(plain)[1]


@pytest.mark.parametrize(
    ("document", "says", "param"),
    [
        ([], "input[1] holds no chunks", "input[1]"),
        (["a", ""], "input[1][1] gives no tokens", "input[1][1]"),
        (["a", "  "], "input[1][1] gives no tokens", "input[1][1]"),
        (["a", 5], "input[1][1] should be text, not int", "input[1][1]"),
        (["\ud800"], "input[1][0] is not valid Unicode", "input[1][0]"),
    ],
)
def test_what_is_wrong_is_named(ordinary: TextTokenizer, document: list[str], says: str, param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ordinary.tokenize_documents([["a"], document])
    assert caught.value.message.startswith(says)
    assert caught.value.param == param


@pytest.mark.parametrize("truncate", [True, False])
def test_a_document_over_the_limit_is_refused_whatever_was_asked(ordinary: TextTokenizer, truncate: bool) -> None:
    options = TokenizeOptions(truncate=truncate)
    assert ordinary.tokenize_documents([["a"] * 10], options)[0].num_tokens == 12
    with pytest.raises(ContextLengthExceeded, match=r"input\[1\] has 13 tokens.*limit of 12") as caught:
        ordinary.tokenize_documents([["a"], ["a"] * 11], options)
    assert caught.value.param == "input[1]"


def test_no_more_is_encoded_than_shows_that_it_is_too_much(ordinary: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match="has over"):
        ordinary.tokenize_documents([["a " * 100_000] * 50])


def test_a_contextual_checkpoint_without_its_separator_is_refused(tmp_path: Path) -> None:
    folder = qwen_folder(tmp_path)
    tokenizer = (folder / "tokenizer.json").read_text().replace("endoftext", "the_end")
    write_folder(folder, {"config.json": CONTEXTUAL, "tokenizer.json": tokenizer})
    with pytest.raises(CheckpointError, match=r"lacks <\|endoftext\|>"):
        TextTokenizer.load(spec_of(folder))
