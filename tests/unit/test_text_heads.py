"""Long texts: only as much is encoded as the limit on tokens calls for, and the ids are those of the whole text."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from text_models import bert_folder, qwen_folder, spec_of, unigram_folder
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

from rosebed.core.errors import ContextLengthExceeded
from rosebed.text.boundaries import splits_at_blanks
from rosebed.text.encoders import Encoder, TokenizersEncoder, choose_encoder
from rosebed.text.heads import GROUP_CHARACTERS, MOST_CHARACTERS, encode_heads, encode_whole, first_size, groups, head
from rosebed.text.loading import load_tokenizer
from rosebed.text.tokenizer import Side, TextTokenizer, TokenizeOptions

FOLDERS = [bert_folder, qwen_folder, unigram_folder]
LONG = 300_000
TEXTS = {
    "words": "a b ab " * (LONG // 7),
    "no blank": "abbaab" * (LONG // 6),
    "blanks first": " " * LONG + "a b",
    "few tokens first": " " * 10_000 + "b " * (LONG // 2),
}


class CountingEncoder:
    """Another encoder, and the characters it was given."""

    name = "counting"

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.characters: list[int] = []

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.characters.append(sum(map(len, texts)))
        return self._encoder.encode(texts)


def encoder_of(folder: Path) -> CountingEncoder:
    return CountingEncoder(choose_encoder(folder, load_tokenizer(folder, "bert")))


@pytest.mark.parametrize("make", FOLDERS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_ids_of_a_head_are_the_first_of_the_whole(tmp_path: Path, make: Callable[[Path], Path], text: str) -> None:
    encoder = encoder_of(make(tmp_path))
    ((found,), (whole,)) = encode_heads(encoder, [text], 20), encode_whole(encoder, [text])
    assert found.ids == whole.ids[: len(found.ids)]
    assert len(found.ids) > 20 if found.is_head else found == whole


def test_a_long_text_is_not_encoded_whole(tmp_path: Path) -> None:
    encoder = encoder_of(bert_folder(tmp_path))
    short, long = encode_heads(encoder, ["a b", TEXTS["words"]], 20)
    assert (len(short.ids), short.is_head, long.is_head) == (2, False, True)
    assert encoder.characters == [pytest.approx(first_size(20), abs=10)]


def test_texts_are_encoded_in_groups(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    encoder = encoder_of(folder)
    spec = spec_of(folder)
    tokenizer = TextTokenizer(load_tokenizer(folder, "bert"), encoder, spec, max_length=spec.max_length)
    text = "a " * 2000
    results = tokenizer.tokenize([text] * 300, TokenizeOptions(truncate=True, truncate_to=9))
    assert {(item.num_tokens, item.num_tokens_before) for item in results} == {(9, 2002)}
    assert max(encoder.characters) <= GROUP_CHARACTERS + len(text)
    assert sum(encoder.characters) == 300 * len(text)


def test_what_is_far_too_long_is_refused_without_counting_it_all(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.load(spec_of(bert_folder(tmp_path)))
    with pytest.raises(
        ContextLengthExceeded, match=r"^input\[1\] has over \d+ tokens, over the limit of \d+$"
    ) as error:
        tokenizer.tokenize(["a", TEXTS["words"]])
    assert error.value.param == "input[1]"


@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [GROUP_CHARACTERS * 2], [1, GROUP_CHARACTERS, 1], [5] * 100_000])
def test_groups_hold_every_text_once(lengths: list[int]) -> None:
    found = [length for group in groups(lengths) for length in lengths[group]]
    assert found == lengths


def test_pairs_are_encoded_whole(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.load(spec_of(bert_folder(tmp_path)))
    (result,) = tokenizer.tokenize_pairs([("a", TEXTS["words"])], TokenizeOptions(truncate=True))
    assert result.num_tokens_before > LONG // 7 * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab cd ef gh", "ab cd"),
        ("ab\u0301 cd\u0301 \u0301ef gh", "ab\u0301 cd\u0301 \u0301ef"),
        ("ab. cd - ef\tgh\nij", "ab. cd - ef\tgh\nij"),
        ("ab  cd  ef", "ab  cd  ef"),
        ("abcdefghijklm", "abcdefghijklm"),
        ("ｶ ﾞｷ ｷ 가 나", "ｶ ﾞｷ ｷ 가"),
    ],
)
def test_a_head_ends_between_two_words_or_not_at_all(text: str, expected: str) -> None:
    assert head(text, 7) == expected


def test_a_lone_surrogate_behind_the_head_is_seen() -> None:
    with pytest.raises(UnicodeEncodeError):
        head("ab cd ef \ud800", 4)


@pytest.mark.parametrize("side", Side)
def test_texts_that_cannot_be_cut_are_not_encoded_at_once(tmp_path: Path, side: Side) -> None:
    folder = bert_folder(tmp_path)
    encoder = encoder_of(folder)
    spec = spec_of(folder)
    tokenizer = TextTokenizer(load_tokenizer(folder, "bert"), encoder, spec, max_length=spec.max_length)
    text = "- " * (GROUP_CHARACTERS // 4)
    tokenizer.tokenize([text] * 5, TokenizeOptions(truncate=True, side=side))
    assert max(encoder.characters) <= GROUP_CHARACTERS
    assert sum(encoder.characters) == 5 * len(text)


LONG_WORDS = {"blanks": " ", "one word": "a", "signs": "- "}


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("unit", LONG_WORDS.values(), ids=LONG_WORDS)
def test_what_cannot_be_cut_is_refused_beyond_a_length(tmp_path: Path, unit: str, truncate: bool) -> None:
    tokenizer = TextTokenizer.load(spec_of(bert_folder(tmp_path)))
    text = (unit * (MOST_CHARACTERS // len(unit) + 1))[: MOST_CHARACTERS + 1]
    with pytest.raises(ContextLengthExceeded, match=r"input\[1\] has 1048577 characters") as error:
        tokenizer.tokenize(["a", text], TokenizeOptions(truncate=truncate))
    assert error.value.param == "input[1]"


QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def in_turn(*parts: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(list(parts))


def with_parts(**parts: object) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, False),
        ({"pre_tokenizer": pre_tokenizers.BertPreTokenizer()}, True),
        ({"pre_tokenizer": pre_tokenizers.Metaspace()}, True),
        ({"pre_tokenizer": pre_tokenizers.Metaspace(split=False)}, False),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel()}, True),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(use_regex=False)}, False),
        ({"pre_tokenizer": pre_tokenizers.Split("x", "isolated")}, False),
        ({"pre_tokenizer": pre_tokenizers.Split(Regex(QWEN), "isolated")}, True),
        ({"pre_tokenizer": pre_tokenizers.Split(Regex(QWEN), "removed", invert=True)}, False),
        ({"pre_tokenizer": pre_tokenizers.Split(Regex(QWEN + "|a b"), "isolated")}, False),
        ({"pre_tokenizer": in_turn(pre_tokenizers.Digits(), pre_tokenizers.WhitespaceSplit())}, True),
        ({"pre_tokenizer": in_turn(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace())}, True),
        ({"pre_tokenizer": in_turn(pre_tokenizers.Metaspace(split=False), pre_tokenizers.WhitespaceSplit())}, False),
        (
            {
                "pre_tokenizer": in_turn(
                    pre_tokenizers.Split(Regex("a(?= b)"), "isolated"), pre_tokenizers.BertPreTokenizer()
                )
            },
            False,
        ),
        ({"pre_tokenizer": pre_tokenizers.WhitespaceSplit(), "normalizer": normalizers.Replace(" ", "▁")}, False),
        (
            {"pre_tokenizer": pre_tokenizers.WhitespaceSplit(), "normalizer": normalizers.Replace(Regex(" {2,}"), " ")},
            True,
        ),
        (
            {"pre_tokenizer": pre_tokenizers.WhitespaceSplit(), "normalizer": normalizers.Replace(Regex(" {2,}"), "▁")},
            False,
        ),
        ({"pre_tokenizer": pre_tokenizers.Metaspace(), "normalizer": normalizers.Replace(Regex(" {2,}"), "▁")}, True),
        ({"pre_tokenizer": pre_tokenizers.Punctuation()}, False),
        ({"pre_tokenizer": pre_tokenizers.Whitespace(), "normalizer": normalizers.NFC()}, True),
        ({"pre_tokenizer": pre_tokenizers.Whitespace(), "normalizer": normalizers.Replace("b", "c d")}, False),
        ({"pre_tokenizer": pre_tokenizers.Whitespace(), "normalizer": normalizers.Nmt()}, False),
    ],
)
def test_only_tokenizers_that_are_known_to_split_are_trusted(parts: dict[str, object], expected: bool) -> None:
    assert splits_at_blanks(with_parts(**parts)) is expected


def test_a_special_token_with_a_blank_could_lie_across_the_cut() -> None:
    tokenizer = with_parts(pre_tokenizer=pre_tokenizers.Whitespace())
    tokenizer.add_special_tokens(["<a b>"])
    assert not splits_at_blanks(tokenizer)


def test_a_normalized_token_with_a_blank_in_its_normal_form_could_too() -> None:
    tokenizer = with_parts(pre_tokenizer=pre_tokenizers.Whitespace(), normalizer=normalizers.NFKC())
    tokenizer.add_tokens([AddedToken("\ufdfa", normalized=True)])
    assert not splits_at_blanks(tokenizer)


@pytest.mark.parametrize(
    "text", ["ab" + " " * 9000 + "<mask>", "ab cd" + " " * 9000 + "<mask> ab" * 999, "ab <mask> " * 999]
)
def test_a_token_that_swallows_the_blanks_before_it_is_whole(tmp_path: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(qwen_folder(tmp_path) / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    assert splits_at_blanks(tokenizer)
    encoder = TokenizersEncoder(tokenizer)
    ((found,), (whole,)) = encode_heads(encoder, [text], 1), encode_whole(encoder, [text])
    assert found.ids == whole.ids[: len(found.ids)]
    assert found.is_head or found == whole
