"""Opening a folder's tokenizer: which file decides, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from core_folders import write_folder
from text_models import WORDS, Files, bert_files, bert_folder, edit_tokenizer, qwen_folder

from rosebed.core.errors import CheckpointError
from rosebed.text.loading import load_tokenizer
from rosebed.text.special_tokens import SpecialTokenTemplate


def settings(**values: Any) -> Files:
    return {"tokenizer_config.json": values}


def vocabulary_folder(folder: Path, more: Files | None = None) -> Path:
    return write_folder(folder, bert_files(more))


def test_the_files_truncation_and_padding_are_off(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(bert_folder(tmp_path), "bert")
    assert tokenizer.truncation is None
    assert tokenizer.padding is None
    assert len(tokenizer.encode("a " * 50).ids) == 52


def test_neither_file_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json .*save_pretrained"):
        load_tokenizer(tmp_path, "bert")


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"model": {"type": "Nonsense"}}'])
def test_a_malformed_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    write_folder(tmp_path, {"tokenizer.json": content})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        load_tokenizer(tmp_path, "bert")


def test_malformed_settings_are_refused(tmp_path: Path) -> None:
    bert_folder(tmp_path, settings(do_lower_case="no"))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: do_lower_case should be true or false"):
        load_tokenizer(tmp_path, "bert")


@pytest.mark.parametrize("source", [bert_folder, vocabulary_folder])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [6, 6]),
        ({"do_lower_case": True}, [6, 6]),
        ({"do_lower_case": False}, [15, 13]),
        ({"do_lower_case": True, "strip_accents": False}, [6, 14]),
        ({"do_lower_case": False, "strip_accents": True}, [15, 15]),
        ({"strip_accents": None}, [6, 6]),
    ],
)
def test_tokenizer_config_wins_over_the_tokenizer(
    tmp_path: Path, source: Any, values: dict[str, Any], expected: list[int]
) -> None:
    tokenizer = load_tokenizer(source(tmp_path, settings(**values)), "bert")
    assert tokenizer.encode("A Ä", add_special_tokens=False).ids == expected


def test_without_a_setting_the_tokenizer_decides(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    cased = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": False}
    edit_tokenizer(folder, normalizer=cased | {"strip_accents": None})
    assert load_tokenizer(folder, "bert").encode("A Ä", add_special_tokens=False).ids == [15, 13]


@pytest.mark.parametrize("source", [bert_folder, vocabulary_folder])
def test_chinese_characters(tmp_path: Path, source: Any) -> None:
    apart = load_tokenizer(source(tmp_path / "a", {}), "bert")
    assert apart.encode("a中", add_special_tokens=False).ids == [6, 1]
    joined = load_tokenizer(source(tmp_path / "b", settings(tokenize_chinese_chars=False)), "bert")
    assert joined.encode("a中", add_special_tokens=False).ids == [1]


@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_a_bare_vocabulary_is_a_bert_tokenizer(tmp_path: Path, model_type: str) -> None:
    tokenizer = load_tokenizer(vocabulary_folder(tmp_path), model_type)
    assert tokenizer.encode("ab x [MASK]").ids == [2, 6, 5, 1, 4, 3]
    assert tokenizer.encode("a", "b").type_ids == [0, 0, 0, 1, 1]
    assert tokenizer.decode([2, 6, 5, 3]) == "ab"


def test_a_vocabulary_is_no_tokenizer_for_other_models(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        load_tokenizer(vocabulary_folder(tmp_path / "a"), "xlm-roberta")
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        load_tokenizer(vocabulary_folder(tmp_path / "b", settings(tokenizer_class="JapaneseTokenizer")), "bert")


def test_the_class_name_decides_before_the_model_type(tmp_path: Path) -> None:
    folder = vocabulary_folder(tmp_path, settings(tokenizer_class="BertTokenizer"))
    assert load_tokenizer(folder, "nomic_bert").encode("a").ids == [2, 6, 3]


def test_special_tokens_may_have_other_names(tmp_path: Path) -> None:
    words = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "a"]
    names = {
        "cls_token": {"content": "<s>", "lstrip": False},
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    }
    folder = vocabulary_folder(tmp_path, {"vocab.txt": "\n".join(words)} | settings(**names))
    assert load_tokenizer(folder, "bert").encode("a b <pad>").ids == [0, 5, 2, 3, 1]


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"vocab.txt": "\n".join(WORDS[:3])}, r"vocab\.txt lacks the special tokens \[SEP\], \[MASK\]"),
        ({"vocab.txt": ""}, "lacks the special tokens"),
        (settings(cls_token=3), "cls_token should be a token, not 3"),
        (settings(cls_token={"lstrip": True}), "cls_token should be a token"),
    ],
)
def test_malformed_vocabularies(tmp_path: Path, files: Files, match: str) -> None:
    with pytest.raises(CheckpointError, match=match):
        load_tokenizer(vocabulary_folder(tmp_path, files), "bert")


def test_a_vocabulary_that_is_not_utf8(tmp_path: Path) -> None:
    vocabulary_folder(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff\xfe\n")
    with pytest.raises(CheckpointError, match="cannot be read as a vocabulary"):
        load_tokenizer(tmp_path, "bert")


def test_what_post_processors_add_is_learnt(tmp_path: Path) -> None:
    bert = load_tokenizer(bert_folder(tmp_path / "bert"), "bert")
    single, pair = SpecialTokenTemplate.probe(bert, 1), SpecialTokenTemplate.probe(bert, 2)
    assert single.gaps == ([2], [3])
    assert pair.gaps == ([2], [3], [3])
    assert pair.gap_types == ([0], [0], [1])
    assert (pair.text_types, single.num_tokens, pair.num_tokens) == ((0, 1), 2, 3)
    qwen = load_tokenizer(qwen_folder(tmp_path / "qwen"), "qwen3")
    assert SpecialTokenTemplate.probe(qwen, 1).gaps == ([], [256])
    plain = load_tokenizer(qwen_folder(tmp_path / "plain", appends_eos=False), "qwen3")
    assert SpecialTokenTemplate.probe(plain, 1).num_tokens == 0
    assert SpecialTokenTemplate.probe(plain, 2).num_tokens == 0


@pytest.mark.parametrize(
    ("processor", "gaps"),
    [
        ({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, [[2], [3], [3]]),
        (
            {
                "type": "RobertaProcessing",
                "sep": ["[SEP]", 3],
                "cls": ["[CLS]", 2],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
            [[2], [3, 3], [3]],
        ),
        (None, [[], [], []]),
    ],
)
def test_other_post_processors(tmp_path: Path, processor: object, gaps: list[list[int]]) -> None:
    tokenizer = load_tokenizer(edit_tokenizer(bert_folder(tmp_path), post_processor=processor), "bert")
    assert list(SpecialTokenTemplate.probe(tokenizer, 2).gaps) == gaps
