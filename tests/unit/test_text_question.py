"""Which tokenizers a question can be asked with, and what goes around it."""

from pathlib import Path

import pytest
from text_models import EOS, qwen_folder
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rosebed.core.errors import CheckpointError
from rosebed.text.loading import load_tokenizer
from rosebed.text.question import question_template, question_texts


@pytest.mark.parametrize("appends_eos", [True, False])
def test_what_goes_around(tmp_path: Path, appends_eos: bool) -> None:
    """An end token that the tokenizer appends comes before the turn's end, as the model card's code has it."""
    tokenizer = load_tokenizer(qwen_folder(tmp_path, appends_eos=appends_eos), "qwen3")
    before, between, after = question_template(tokenizer).gaps
    assert tokenizer.decode(before).startswith("<|im_start|>system\nJudge whether the Document meets")
    assert between == []
    assert (after[0] == EOS) is appends_eos
    assert tokenizer.decode(after) == "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_a_tokenizer_of_another_kind() -> None:
    whole_texts = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    with pytest.raises(CheckpointError, match="the tokenizer is none of Qwen's"):
        question_template(whole_texts)


def test_texts() -> None:
    assert question_texts([("q", "d")], "") == [
        (
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
            "<Query>: q\n<Document>:",
            " d",
        )
    ]
    assert question_texts([("q", "")], "Find") == [("<Instruct>: Find\n<Query>: q\n<Document>:", " ")]
