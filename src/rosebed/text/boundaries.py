"""Whether a tokenizer takes words one by one: then what lies before a blank is encoded the same, whatever follows.

Decided from the parts of a `tokenizer.json`. Only parts are listed for which it holds at a single blank between two
letters or digits; of a tokenizer with any other, nothing is assumed.
"""

import json
from typing import Any

from tokenizers import Tokenizer

_LOCAL_NORMALIZERS = frozenset(
    # Each looks at characters and the marks beside them, or at the ends of the text.
    {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Precompiled"}
)
_BLANK_RUNS = ({"Regex": " {2,}"}, {"String": " "})
"""What `Replace` may look for: runs of blanks, which a single one is none of, or each blank by itself."""

_SPLITTING = frozenset({"BertPreTokenizer", "WhitespaceSplit", "Whitespace"})
_KNOWN_PATTERNS = (
    # GPT-4's and what was made of it (Llama 3, Qwen 2 and 3): a piece is a word with at most one character before it,
    # a few digits, a run of signs, or of blanks. Only a blank's own piece depends on what follows it.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
)


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether texts may be cut at a single blank between two letters or digits."""
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    return (
        all(map(_is_local, _flat(parts["normalizer"], "normalizers")))
        and any(map(_splits, _flat(parts["pre_tokenizer"], "pretokenizers")))
        and not any(map(_holds_blank, tokenizer.get_added_tokens_decoder().values()))
    )


def _flat(part: Any, inner: str) -> list[dict[str, Any]]:
    """The members of a sequence, or the part alone."""
    if part is None:
        return []
    return [member for one in part[inner] for member in _flat(one, inner)] if part["type"] == "Sequence" else [part]


def _is_local(normalizer: dict[str, Any]) -> bool:
    if normalizer["type"] == "Replace":
        return normalizer["pattern"] in _BLANK_RUNS
    return normalizer["type"] in _LOCAL_NORMALIZERS


def _splits(pre_tokenizer: dict[str, Any]) -> bool:
    match pre_tokenizer["type"]:
        case "Metaspace":
            return pre_tokenizer.get("split", True)
        case "ByteLevel":  # with GPT-2's own expression, built in
            return pre_tokenizer.get("use_regex", True)
        case "Split":
            pattern = pre_tokenizer["pattern"].get("Regex", "")
            return pattern.startswith(_KNOWN_PATTERNS) and pre_tokenizer["behavior"] == "Isolated"
        case name:
            return name in _SPLITTING


def _holds_blank(token: Any) -> bool:
    return any(character.isspace() for character in token.content)
