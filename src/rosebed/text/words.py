"""A memory of words, for tokenizers that take a text word by word, as BERT's do: a text is its words' ids in a row.

That holds for plain ASCII, where no character joins words or changes with its neighbours; other texts are left to the
library. Words that are tokens by themselves are known from the start, others are the library's when they first come.
It goes through a text character by character, which takes six times as long as to look up words.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from tokenizers import Tokenizer

Encode = Callable[[Sequence[str]], list[list[int]]]
"""Ids of each text, without special tokens."""

MOST_CHARACTERS = 2048
"""Of a text that is looked up. Longer ones are better off with the library, which lets other threads work meanwhile."""
MOST_WORDS = 1 << 14
"""Beside the vocabulary's own; with more of them, the memory starts anew. They take some 6 MB, BERT's own some 5."""
MOST_LETTERS = 32
"""Of a word that is remembered."""
FEW_NEW = 5
"""Where less than one word in so many is new, new words are encoded one by one, else the text as it is."""

_PLAIN = re.compile(r"[\t\n\r -~]*")
_WORD = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
"""What BERT's pre-tokenizer makes of plain ASCII: letters and digits in a row, or one sign; blanks between."""
_TOKEN = re.compile(r"[!-~]+")


class WordMemory:
    """An `Encoder` that looks short texts up, and leaves the others to the library. Safe to share between threads."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, encode: Encode) -> None:
        """`encode` is the library's, for `tokenizer`. ValueError if that does not take texts word by word."""
        description = json.loads(tokenizer.to_str())
        normalizer: dict[str, Any] = description["normalizer"] or {}
        kinds = normalizer.get("type"), (description["pre_tokenizer"] or {}).get("type"), description["model"]["type"]
        if kinds != ("BertNormalizer", "BertPreTokenizer", "WordPiece"):
            raise ValueError(f"not a tokenizer of words as BERT has it: {kinds}")
        added = [token["content"] for token in description["added_tokens"]]
        if not all(_TOKEN.fullmatch(content) for content in added):
            raise ValueError("an added token is no plain word")
        self._lowers: bool = normalizer["lowercase"]
        self._added = re.compile("|".join(map(re.escape, added)) or r"(?!)", re.IGNORECASE)
        """What the library looks for in the whole text, in other letters too."""
        self._tokenizer = tokenizer
        self._encode = encode
        self._vocabulary = _own_words(tokenizer, description["model"]["max_input_chars_per_word"])
        self._known = self._vocabulary.copy()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) != 1:
            return self._encode(texts)  # several at once, outside the interpreter
        text = texts[0]
        if len(text) > MOST_CHARACTERS or _PLAIN.fullmatch(text) is None or self._added.search(text) is not None:
            return self._encode(texts)
        words: list[str] = _WORD.findall(text.lower() if self._lowers else text)
        known = self._known
        ids: list[int] = []
        try:
            for word in words:
                ids += known[word]
        except KeyError:
            return [self._learn(text, words)]
        return [ids]

    def _learn(self, text: str, words: list[str]) -> list[int]:
        """The ids of `text`, which consists of `words`, not all of them known."""
        if len(self._known) >= len(self._vocabulary) + MOST_WORDS:
            self._known = self._vocabulary.copy()  # another thread may still look at the old one
        known = self._known
        new = {word for word in words if word not in known}
        if FEW_NEW * len(new) < len(words):
            found = {word: self._encode([word])[0] for word in new}
            _keep(known, found)
            return [token_id for word in words for token_id in (found[word] if word in found else known[word])]
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = encoding.ids
        _keep(known, dict(zip(words, _parts(ids, encoding.word_ids, len(words)), strict=True)))
        return ids


def _own_words(tokenizer: Tokenizer, most_letters: int) -> dict[str, list[int]]:
    """The words that are tokens by themselves."""
    tokens = tokenizer.get_vocab(with_added_tokens=False)
    most_letters = min(most_letters, MOST_LETTERS)
    return {
        token: [token_id] for token, token_id in tokens.items() if _WORD.fullmatch(token) and len(token) <= most_letters
    }


def _parts(ids: list[int], owners: list[int | None], num_words: int) -> list[list[int]]:
    """The ids of each word, given the word that each id is of."""
    parts: list[list[int]] = [[] for _ in range(num_words)]
    for token_id, owner in zip(ids, owners, strict=True):
        parts[cast(int, owner)].append(token_id)  # tokens outside of all words are special ones
    return parts


def _keep(known: dict[str, list[int]], found: dict[str, list[int]]) -> None:
    known.update({word: ids for word, ids in found.items() if len(word) <= MOST_LETTERS})
