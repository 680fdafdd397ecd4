"""One text to ids: special tokens, truncation, prompts, refusals. Tokenizers are tiny; parity tests use real ones."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_models import EOS, bert, bert_folder, qwen, spec_of
from tokenizers import Tokenizer

from rosebed.core.errors import CheckpointError, ConfigError, ContextLengthExceeded, InvalidInput
from rosebed.text.tokenizer import Side, TextTokenizer, TokenizedInput, TokenizeOptions, check_tokenizer

NO_SPECIALS = TokenizeOptions(add_special_tokens=False)


def ids(results: list[TokenizedInput]) -> list[list[int]]:
    return [result.token_ids.tolist() for result in results]


def cut(limit: int | None = None, side: Side = Side.RIGHT, **more: Any) -> TokenizeOptions:
    return TokenizeOptions(truncate=True, truncate_to=limit, side=side, **more)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    return qwen(tmp_path_factory.mktemp("qwen"))


def test_special_tokens_go_around_each_text(tokenizer: TextTokenizer) -> None:
    results = tokenizer.tokenize(["a b ab", "", "   "])
    assert ids(results) == [[2, 6, 7, 6, 5, 3], [2, 3], [2, 3]]
    assert [r.pool_spans.tolist() for r in results] == [[[0, 6]], [[0, 2]], [[0, 2]]]
    assert [r.num_tokens_before for r in results] == [0, 0, 0]
    assert [r.num_tokens for r in results] == [6, 2, 2]
    assert all(r.token_ids.dtype == np.int32 and r.pool_spans.dtype == np.int32 for r in results)


def test_no_texts(tokenizer: TextTokenizer) -> None:
    assert tokenizer.tokenize([]) == []


def test_the_files_own_padding_and_truncation_are_off(tokenizer: TextTokenizer) -> None:
    assert ids(tokenizer.tokenize(["a " * 20, "a"])) == [[2, *[6] * 20, 3], [2, 6, 3]]


def test_without_special_tokens(tokenizer: TextTokenizer, bytewise: TextTokenizer) -> None:
    assert ids(tokenizer.tokenize(["a b"], NO_SPECIALS)) == [[6, 7]]
    assert len(bytewise.tokenize(["ab"], NO_SPECIALS)[0].token_ids) == 2


def test_an_end_token_is_appended_once(bytewise: TextTokenizer) -> None:
    assert ids(bytewise.tokenize(["", "!"])) == [[EOS], [0, EOS]]
    assert ids(bytewise.tokenize(["!<|endoftext|>"])) == [[0, EOS, EOS]]


def test_literal_special_tokens_are_the_special_ids(tokenizer: TextTokenizer) -> None:
    assert ids(tokenizer.tokenize(["a [SEP] b [MASK]"], NO_SPECIALS)) == [[6, 3, 7, 4]]


def test_type_ids_of_one_text_are_all_zero(tokenizer: TextTokenizer) -> None:
    assert tokenizer.tokenize(["a b"])[0].token_type_ids is None


@pytest.mark.parametrize(("side", "kept"), [(Side.RIGHT, [6, 7, 8]), (Side.LEFT, [8, 9, 10])])
def test_cutting_keeps_the_special_tokens(tokenizer: TextTokenizer, side: Side, kept: list[int]) -> None:
    result = tokenizer.tokenize(["a b c d e"], cut(5, side))[0]
    assert result.token_ids.tolist() == [2, *kept, 3]
    assert result.num_tokens_before == 7
    assert result.pool_spans.tolist() == [[0, 5]]


@pytest.mark.parametrize("side", Side)
def test_cutting_keeps_the_end_token_that_is_pooled(bytewise: TextTokenizer, side: Side) -> None:
    result = bytewise.tokenize(['!"#$'], cut(3, side))[0]
    assert result.token_ids.tolist() == ([0, 1, EOS] if side is Side.RIGHT else [2, 3, EOS])
    assert result.num_tokens_before == 5


def test_cutting_down_to_the_special_tokens(tokenizer: TextTokenizer) -> None:
    result = tokenizer.tokenize(["a b"], cut(2))[0]
    assert (result.token_ids.tolist(), result.num_tokens_before) == ([2, 3], 4)


@pytest.mark.parametrize("limit", [1, 0, -1])
def test_cutting_into_the_special_tokens_is_refused(tokenizer: TextTokenizer, limit: int) -> None:
    with pytest.raises(
        InvalidInput, match=rf"input\[0\] cannot be cut to {limit} tokens?: its 2 special tokens stay"
    ) as caught:
        tokenizer.tokenize(["a b"], cut(limit))
    assert caught.value.param == "input[0]"
    assert not isinstance(caught.value, ContextLengthExceeded)


def test_cutting_to_nothing_is_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be cut to 0 tokens"):
        tokenizer.tokenize(["a b"], cut(0, add_special_tokens=False))


def test_the_limit_is_the_models(tmp_path: Path) -> None:
    tokenizer = bert(tmp_path, {"sentence_bert_config.json": {"max_seq_length": 6}})
    assert tokenizer.max_length == 6
    assert ids(tokenizer.tokenize(["a a a a"])) == [[2, 6, 6, 6, 6, 3]]
    assert ids(tokenizer.tokenize(["a a a a a"], cut())) == [[2, 6, 6, 6, 6, 3]]
    assert ids(tokenizer.tokenize(["a a a a a"], cut(5))) == [[2, 6, 6, 6, 3]]
    assert ids(tokenizer.tokenize(["a a a a a"], cut(7))) == [[2, 6, 6, 6, 6, 3]]


def test_a_server_may_tighten_the_limit_but_not_widen_it(tmp_path: Path) -> None:
    spec = spec_of(bert_folder(tmp_path))
    assert TextTokenizer.load(spec, max_length=9).max_length == 9
    assert TextTokenizer.load(spec, max_length=9999).max_length == spec.max_length == 256


@pytest.mark.parametrize("limit", [1, 2])
def test_a_limit_without_room_for_text_is_refused_at_once(tmp_path: Path, limit: int) -> None:
    with pytest.raises(
        ConfigError, match=f"a limit of {limit} tokens? leaves no room for text beside 2 special tokens"
    ):
        bert(tmp_path, max_length=limit)


def test_too_long_names_index_tokens_and_limit(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"^input\[1\] has 302 tokens, over the limit of 256$") as caught:
        tokenizer.tokenize(["a", "a " * 300, "b " * 400])
    assert caught.value.param == "input[1]"


def test_a_tighter_limit_refuses_too(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match="has 5 tokens, over the limit of 4"):
        tokenizer.tokenize(["a b c"], TokenizeOptions(truncate_to=4))


@pytest.mark.parametrize("text", ["", "  ", "\x00", "\u200b"])
def test_a_text_of_no_tokens_is_refused(tokenizer: TextTokenizer, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^input\[1\] gives no tokens$") as caught:
        tokenizer.tokenize(["a", text], NO_SPECIALS)
    assert caught.value.param == "input[1]"


def test_a_model_without_special_tokens_refuses_empty_text(tmp_path: Path) -> None:
    tokenizer = qwen(tmp_path, appends_eos=False)
    assert tokenizer.num_special_tokens == 0
    with pytest.raises(InvalidInput, match=r"input\[0\] gives no tokens"):
        tokenizer.tokenize([""])


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc80b", "\ud83d\ude00"])
def test_lone_surrogates_are_refused(tokenizer: TextTokenizer, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^input\[2\] is not valid Unicode: it has a lone surrogate$") as caught:
        tokenizer.tokenize(["a", "😀", text, "b", text])
    assert caught.value.param == "input[2]"
    with pytest.raises(InvalidInput, match="not valid Unicode"):
        tokenizer.token_spans(text)


@pytest.mark.parametrize("value", [None, 1, 1.5, b"a", ["a"], float("nan")])
@pytest.mark.parametrize("prompt", ["", "a: "])
def test_what_is_no_text_is_refused(tokenizer: TextTokenizer, value: Any, prompt: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^input\[1\] should be text, not {type(value).__name__}$"):
        tokenizer.tokenize(["a", value], TokenizeOptions(prompt=prompt))


def test_a_prompt_with_a_lone_surrogate_is_the_prompts_fault(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"^prompt is not valid Unicode") as caught:
        tokenizer.tokenize(["a"], TokenizeOptions(prompt="\ud800"))
    assert caught.value.param == "prompt"


def test_the_lowest_index_at_fault_is_named(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"input\[0\]"):
        tokenizer.tokenize(["a " * 300, "\ud800"])
    with pytest.raises(InvalidInput, match=r"input\[0\] is not valid"):
        tokenizer.tokenize(["\ud800", "a " * 300])


def test_the_next_call_is_unharmed(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidInput):
        tokenizer.tokenize(["a", "\ud800"])
    assert ids(tokenizer.tokenize(["a"])) == [[2, 6, 3]]


# Prompts


def test_a_prompt_is_text_in_front(tokenizer: TextTokenizer) -> None:
    result = tokenizer.tokenize(["a", "b"], TokenizeOptions(prompt="query: "))
    assert ids(result) == [[2, 11, 12, 6, 3], [2, 11, 12, 7, 3]]
    assert [r.pool_spans.tolist() for r in result] == [[[0, 5]]] * 2


def test_a_prompt_runs_into_the_text(tokenizer: TextTokenizer) -> None:
    assert ids(tokenizer.tokenize(["b"], TokenizeOptions(prompt="a"))) == [[2, 6, 5, 3]]


def no_prompt_pooled(folder: Path) -> TextTokenizer:
    return bert(folder, {"1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}})


@pytest.mark.parametrize(
    ("options", "text", "expected", "span"),
    [
        (TokenizeOptions(), "a", [2, 6, 3], [0, 3]),
        (TokenizeOptions(prompt="query: "), "a", [2, 11, 12, 6, 3], [3, 5]),
        (TokenizeOptions(prompt="query: "), "", [2, 11, 12, 3], [3, 4]),
        (TokenizeOptions(prompt="query: ", add_special_tokens=False), "a b", [11, 12, 6, 7], [2, 4]),
        # A prompt that ends in a special token of its own is one token short there, as in sentence-transformers.
        (TokenizeOptions(prompt="query [SEP]", add_special_tokens=False), "a", [11, 3, 6], [1, 3]),
        # Nothing is left after the prompt: pooling covers all there is.
        (TokenizeOptions(prompt="query: ", add_special_tokens=False), "", [11, 12], [0, 2]),
        (cut(3, prompt="query: "), "a b", [2, 11, 3], [0, 3]),
        (cut(5, prompt="query: "), "a b", [2, 11, 12, 6, 3], [3, 5]),
        # The left cut takes the prompt first.
        (cut(5, Side.LEFT, prompt="query: "), "a b", [2, 12, 6, 7, 3], [2, 5]),
        (cut(4, Side.LEFT, prompt="query: "), "a b", [2, 6, 7, 3], [1, 4]),
        (cut(3, Side.LEFT, prompt="query: "), "a b", [2, 7, 3], [0, 3]),
    ],
)
def test_prompt_tokens_left_out_of_pooling(
    tmp_path: Path, options: TokenizeOptions, text: str, expected: list[int], span: list[int]
) -> None:
    result = no_prompt_pooled(tmp_path).tokenize([text], options)[0]
    assert result.token_ids.tolist() == expected
    assert result.pool_spans.tolist() == [span]


def test_given_ids_have_no_prompt_to_leave_out(tmp_path: Path) -> None:
    result = no_prompt_pooled(tmp_path).wrap_token_ids([2, 6, 7, 8, 3], 0, TokenizeOptions(prompt="query: "))
    assert result.pool_spans.tolist() == [[0, 5]]


def test_do_lower_case_lowers_prompt_and_text(tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"do_lower_case": False}}
    kept = bert(tmp_path / "kept", files)
    assert ids(kept.tokenize(["A Ä", "a"], TokenizeOptions(prompt="A "))) == [[2, 15, 15, 13, 3], [2, 15, 6, 3]]
    lowered = bert(tmp_path / "lowered", files | {"sentence_bert_config.json": {"do_lower_case": True}})
    assert ids(lowered.tokenize(["A Ä", "a"], TokenizeOptions(prompt="A "))) == [[2, 6, 6, 14, 3], [2, 6, 6, 3]]


# Ids that a caller brings


def test_given_ids_are_used_as_they_are(tokenizer: TextTokenizer) -> None:
    result = tokenizer.wrap_token_ids([6, 6, 2, 0, 15], 4)
    assert result.token_ids.tolist() == [6, 6, 2, 0, 15]
    assert result.token_ids.dtype == np.int32
    assert result.pool_spans.tolist() == [[0, 5]]
    assert (result.num_tokens_before, result.token_type_ids) == (0, None)


@pytest.mark.parametrize("wrong", [-1, 16, 2**31, 2**63, -(2**70)])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: TextTokenizer, wrong: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^input\[7\]\[1\] is {wrong}, but token ids lie in \[0, 16\)$") as caught:
        tokenizer.wrap_token_ids([0, wrong, 3, wrong], 7)
    assert caught.value.param == "input[7]"


def test_no_ids_are_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidInput, match=r"^input\[3\] gives no tokens$"):
        tokenizer.wrap_token_ids([], 3)


def test_too_many_ids_are_refused_or_cut(tokenizer: TextTokenizer) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"input\[2\] has 300 tokens, over the limit of 256"):
        tokenizer.wrap_token_ids([6] * 300, 2)
    result = tokenizer.wrap_token_ids([6, 7, 8, 9], 0, cut(2))
    assert (result.token_ids.tolist(), result.num_tokens_before) == ([6, 7], 4)
    assert tokenizer.wrap_token_ids([6, 7, 8, 9], 0, cut(2, Side.LEFT)).token_ids.tolist() == [8, 9]


@pytest.mark.parametrize(
    ("given", "limit", "kept"),
    [
        ([2, 6, 7, 8, 3], 4, [2, 6, 7, 3]),
        ([2, 3], 2, [2, 3]),
        ([2, 6, 7, 8], 3, [2, 6, 7]),
        ([6, 7, 8, 3], 3, [6, 7, 8]),
        ([3], 1, [3]),
    ],
)
def test_given_ids_keep_the_special_tokens_they_came_with(
    tokenizer: TextTokenizer, given: list[int], limit: int, kept: list[int]
) -> None:
    assert tokenizer.wrap_token_ids(given, 0, cut(limit)).token_ids.tolist() == kept


def test_a_given_end_token_stays_the_pooled_one(bytewise: TextTokenizer) -> None:
    assert bytewise.wrap_token_ids([0, 1, 2, EOS], 0, cut(3)).token_ids.tolist() == [0, 1, EOS]


@given(st.lists(st.integers(0, 15), min_size=1, max_size=40), st.integers(2, 40), st.sampled_from(Side))
def test_given_ids_are_never_over_the_limit(
    tokenizer: TextTokenizer, given_ids: list[int], limit: int, side: Side
) -> None:
    result = tokenizer.wrap_token_ids(given_ids, 0, cut(limit, side))
    assert result.num_tokens == min(limit, len(given_ids))
    assert result.num_tokens_before == (len(given_ids) if len(given_ids) > limit else 0)
    if len(given_ids) <= limit:
        assert result.token_ids.tolist() == given_ids


# Inspection


def test_token_spans(tokenizer: TextTokenizer) -> None:
    spans = tokenizer.token_spans("a Ab 😀[SEP]")
    assert [(s.id, s.text, s.special, s.start, s.stop) for s in spans] == [
        (2, "[CLS]", True, None, None),
        (6, "a", False, 0, 1),
        (6, "A", False, 2, 3),
        (5, "b", False, 3, 4),
        (1, "😀", False, 5, 6),
        (3, "[SEP]", False, 6, 11),
        (3, "[SEP]", True, None, None),
    ]


def test_token_spans_follow_the_options(tokenizer: TextTokenizer) -> None:
    spans = tokenizer.token_spans("a", TokenizeOptions(prompt="b ", add_special_tokens=False, truncate_to=1))
    assert [(s.text, s.start, s.stop) for s in spans] == [("b", 0, 1), ("a", 2, 3)]


def test_token_spans_of_a_long_text_take_linear_time(tokenizer: TextTokenizer) -> None:
    start = time.thread_time()
    assert len(tokenizer.token_spans("a " * 50_000)) == 50_002
    assert time.thread_time() - start < 2


@pytest.mark.parametrize("wrong", [-1, 16, 2**63])
def test_decoding_checks_ids(tokenizer: TextTokenizer, wrong: int) -> None:
    assert tokenizer.decode([]) == ""
    with pytest.raises(InvalidInput, match=rf"^ids\[1\] is {wrong}, but token ids lie in") as caught:
        tokenizer.decode([6, wrong])
    assert caught.value.param == "ids[1]"


def test_decode(tokenizer: TextTokenizer, bytewise: TextTokenizer) -> None:
    assert tokenizer.decode([2, 6, 5, 7, 3]) == "ab b"
    assert tokenizer.decode([2, 6, 3], skip_special_tokens=False) == "[CLS] a [SEP]"
    encoded = bytewise.tokenize(["naïve 😀"])[0].token_ids.tolist()
    assert bytewise.decode(encoded) == "naïve 😀"


# Properties

TEXTS = st.text(st.sampled_from("ab c de[]"), max_size=60)


@given(st.lists(TEXTS, max_size=5), st.integers(3, 40), st.sampled_from(Side))
def test_cut_texts_are_the_uncut_ones_less_one_end(
    tokenizer: TextTokenizer, texts: list[str], limit: int, side: Side
) -> None:
    whole = tokenizer.tokenize(texts)
    for before, after in zip(whole, tokenizer.tokenize(texts, cut(limit, side)), strict=True):
        content, kept = before.token_ids[1:-1].tolist(), after.token_ids[1:-1].tolist()
        room = limit - 2
        assert kept == (content[:room] if side is Side.RIGHT else content[max(0, len(content) - room) :])
        assert [after.token_ids[0], after.token_ids[-1]] == [2, 3]
        assert after.num_tokens_before == (before.num_tokens if before.num_tokens > limit else 0)


def test_many_threads_with_mixed_options_give_serial_ids(tokenizer: TextTokenizer) -> None:
    jobs = [
        (
            [f"a{' b c d e ab' * (i % 7)}{'b' * (i % 3)}" for i in range(start, start + 5)],
            TokenizeOptions(
                prompt="query: " if start % 2 else "",
                truncate=True,
                truncate_to=3 + start % 11,
                side=Side.LEFT if start % 3 else Side.RIGHT,
                add_special_tokens=bool(start % 5),
            ),
        )
        for start in range(1, 400)
    ]

    def run(job: tuple[list[str], TokenizeOptions]) -> list[list[int]]:
        return ids(tokenizer.tokenize(*job))

    serial = [run(job) for job in jobs]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(run, jobs)) == serial


def test_a_token_that_the_model_has_no_vector_for_is_named(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocab_size = spec_of(folder).vocab_size
    tokenizer.add_tokens([f"<extra{i}>" for i in range(vocab_size)])
    tokenizer.save(str(folder / "tokenizer.json"))
    strange = TextTokenizer.load(spec_of(folder))
    assert ids(strange.tokenize(["a b"])) == [[2, 6, 7, 3]]
    last = f"<extra{vocab_size - 1}>"
    with pytest.raises(InvalidInput, match=rf"input\[1\] holds the token '{last}' \(\d+\), for which") as refused:
        strange.tokenize(["a", f"see {last}"])
    assert refused.value.param == "input[1]"


@pytest.mark.parametrize("limit", [1, 2])
def test_checking_finds_a_limit_without_room(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ConfigError, match="--max-length"):
        check_tokenizer(replace(spec_of(bert_folder(tmp_path)), max_length=limit))


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_checking_finds_a_malformed_file(tmp_path: Path, content: str) -> None:
    spec = spec_of(bert_folder(tmp_path))
    (spec.folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        check_tokenizer(spec)
