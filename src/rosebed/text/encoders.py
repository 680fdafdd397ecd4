"""What turns a bare text into ids: the tokenizers library, or a faster one that is known to give the same ids.

Two rules keep the faster one honest: it must support every part of the file, or it is not used; and it must agree with
the tokenizers library on the probes below each time a model is loaded. Special tokens and cutting are not its business.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.models import BPE

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
    """Byte-level BPE (Qwen, ModernBERT, RoBERTa), tens of times faster. ValueError if it cannot read the file.

    Texts go one by one on the calling thread: it needs no pool, and pools of many workers would only fight.
    """

    name = "fastokens"

    def __init__(self, path: Path) -> None:
        from fastokens import Tokenizer as FastTokenizer

        self._tokenizer = FastTokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text).ids for text in texts]


def choose_encoder(folder: Path, tokenizer: Tokenizer) -> Encoder:
    """The fastest encoder for the folder's tokenizer that gives the ids of `tokenizer`, its loaded form."""
    reference = TokenizersEncoder(tokenizer)
    if not isinstance(tokenizer.model, BPE):
        return reference
    try:
        faster = FastokensEncoder(folder / "tokenizer.json")
    except (ModuleNotFoundError, ValueError) as error:
        _logger.info("tokenizing with the tokenizers library: %s", error)
        return reference
    if faster.encode(_PROBES) != reference.encode(_PROBES):
        _logger.warning("fastokens gives other ids for this tokenizer: tokenizing with the tokenizers library")
        return reference
    return faster
