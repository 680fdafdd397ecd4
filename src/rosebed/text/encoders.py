"""What turns a bare text into ids: the tokenizers library, or a faster one that is known to give the same ids.

Two rules keep the faster ones honest: one that cannot read every part of the file is not used, nor is one that differs
from the tokenizers library on the probes below, each time a model is loaded. Cutting is not their business, nor are
special tokens.

The faster libraries take texts one by one on the calling thread, which lets go of the interpreter meanwhile: they need
no thread pool, the pools of many workers would only fight, and a pool does not survive a fork. For BERT's tokenizer
there is none; short texts are looked up word by word instead (`text.words`).
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece

from rosebed.text.special_tokens import SpecialTokenTemplate
from rosebed.text.words import WordMemory

_logger = logging.getLogger(__name__)

_PROBES = (
    "",
    " ",
    "A man is playing a guitar on stage.",
    "  leading, trailing  and\tinner blanks \n\n  \r\n\r ",
    "it's DON'T we'LL they've 'tis",
    "1234567 3.14 ½ ² ٣٤ \uff14\uff12",
    "def f(x):\n    return {x: [1, 2]}  # ok\n",
    "é e\u0301 \u0301\u0308 ﬁ ﷽ \u212b 가 \u1100\u1161",
    "我喜歡。 ｶﾞｷﾞ テスト ฉันชอบ क्षत्रिय مُشَكَّلَة שָׁלוֹם",
    "👨‍👩‍👧‍👦 👍🏽 🇩🇪 ❤️ \U0001d538 𠀀",
    "a\x00b\x01\x7f\x85 \u200b\u200d\ufeff\u00ad\u2028 \ufffd \U0010ffff",
    "<|endoftext|>a<|im_start|> <s> b</s> [CLS] [SEP]<mask> <think>",
    "a" * 300 + " " * 300 + "!" * 300,
)


class Encoder(Protocol):
    """Encodes whole texts, without special tokens. Safe to share between threads."""

    name: str
    """The library at work."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text. TypeError or UnicodeEncodeError if one is no text or has a lone surrogate."""
        ...


class TokenizersEncoder:
    """Any tokenizer of the `tokenizers` format, by the library that defines it."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        # Ids are those of `encode`; this form leaves out offsets, and one text alone skips the thread pool.
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


class FastokensEncoder:
    """Byte-level BPE (Qwen, ModernBERT, RoBERTa). ValueError if it cannot read the file."""

    name = "fastokens"

    def __init__(self, path: Path) -> None:
        from fastokens import Tokenizer as FastTokenizer

        self._tokenizer = FastTokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text).ids for text in texts]


class SplintrEncoder:
    """Unigram (XLM-RoBERTa, BGE-M3, E5). ValueError if it cannot read the file."""

    name = "splintr"

    def __init__(self, path: Path, template: SpecialTokenTemplate) -> None:
        from splintr import from_json

        self._tokenizer = from_json(str(path))
        self._num_before, self._num_after = map(len, template.gaps)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        # NOTE: its other calls hold the interpreter lock. This one puts special tokens around the text.
        return [self._bare(self._tokenizer.encode_batch([text])[0]) for text in texts]

    def _bare(self, ids: list[int]) -> list[int]:
        return ids[self._num_before : len(ids) - self._num_after]


def choose_encoder(folder: Path, tokenizer: Tokenizer) -> Encoder:
    """The fastest encoder for the folder's tokenizer that gives the ids of `tokenizer`, its loaded form."""
    reference = TokenizersEncoder(tokenizer)
    try:
        faster = _faster(folder / "tokenizer.json", tokenizer, reference)
    except (ModuleNotFoundError, ValueError) as error:
        _logger.info("tokenizing with the tokenizers library: %s", error)
        return reference
    if faster is None:
        return reference
    if [faster.encode([text])[0] for text in _PROBES] != reference.encode(_PROBES):
        _logger.warning("%s gives other ids for this tokenizer: tokenizing with the tokenizers library", faster.name)
        return reference
    return faster


def _faster(path: Path, tokenizer: Tokenizer, reference: TokenizersEncoder) -> Encoder | None:
    match tokenizer.model:
        case BPE():
            return FastokensEncoder(path)
        case Unigram():
            return SplintrEncoder(path, SpecialTokenTemplate.probe(tokenizer, 1))
        case WordPiece():
            return WordMemory(tokenizer, reference.encode)
        case _:
            return None
