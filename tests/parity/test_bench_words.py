"""The words that benchmark texts are made of are one token each, in every vocabulary that Rosebed's models have."""

from pathlib import Path

import numpy as np
import pytest
from text_assets import minilm, qwen3, xlm_r
from tokenizers import Tokenizer

from rosebed.bench.words import WORDS


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "qwen"])
def test_a_text_of_n_words_is_n_tokens(name: str, tmp_path: Path) -> None:
    folders = {
        "bert": minilm,
        "xlm-roberta": lambda: xlm_r(tmp_path),
        "qwen": lambda: qwen3(tmp_path, appends_end=False),
    }
    tokenizer = Tokenizer.from_file(str(folders[name]() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    random = np.random.default_rng(0)
    texts = [*WORDS, *(" ".join(random.choice(WORDS, 500)) for _ in range(20))]
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        assert len(encoding.ids) == len(text.split()), text
