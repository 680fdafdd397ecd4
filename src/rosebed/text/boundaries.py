"""Whether a tokenizer takes words one by one: then what lies before a blank is encoded the same, whatever follows.

Decided from the parts of a `tokenizer.json`. Only parts are listed for which it holds at a single blank between two
letters or digits; of a tokenizer with any other, nothing is assumed.
"""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer

_LOCAL_NORMALIZERS = frozenset(
    # Each looks at characters and the marks beside them, or at the ends of the text.
    {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Precompiled"}
)
_BLANK_RUNS = ({"Regex": " {2,}"}, {"String": "  "})
"""What `Replace` may look for: runs of blanks, which a single one is none of."""
_BLANK, _METASPACE = " ", "▁"

_SPLITTING = frozenset({"BertPreTokenizer", "WhitespaceSplit", "Whitespace"})
_ISOLATING = frozenset({"Digits", "Punctuation"})
"""Cut single characters out of what they are given, whatever lies around those; blanks are left to later parts."""
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS = frozenset(
    # GPT-4's and what was made of it (Llama 3, Qwen 2 and 3): a piece is a word with at most one character before it,
    # a few digits, a run of signs, or of blanks. Only a blank's own piece depends on what follows it.
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}{_TAIL}"
    for digits in ("", "{1,3}")
)


def splits_at_blanks(tokenizer: Tokenizer) -> bool:
    """Whether texts may be cut at a single blank between two letters or digits."""
    normalizers = _flat(_read(tokenizer.normalizer), "normalizers")
    pre_tokenizers = _flat(_read(tokenizer.pre_tokenizer), "pretokenizers")
    added = tokenizer.get_added_tokens_decoder().values()
    return (
        _are_local(normalizers, splits_at_metaspace=any(part["type"] == "Metaspace" for part in pre_tokenizers))
        and _split(pre_tokenizers)
        and not any(_holds_blank(form) for token in added for form in _forms(token, tokenizer.normalizer))
    )


def _read(part: Any) -> Any:
    """What `tokenizer.json` holds for one part; the whole file takes long to write out."""
    return None if part is None else json.loads(part.__getstate__())


def _flat(part: Any, inner: str) -> list[dict[str, Any]]:
    """The members of a sequence, or the part alone."""
    if part is None:
        return []
    return [member for one in part[inner] for member in _flat(one, inner)] if part["type"] == "Sequence" else [part]


def _are_local(normalizers: list[dict[str, Any]], *, splits_at_metaspace: bool) -> bool:
    """Whether what each makes of one word, and of the blank behind it, does not depend on the next word."""
    harmless = {_BLANK, _METASPACE} if splits_at_metaspace else {_BLANK}
    return all(
        part["pattern"] in _BLANK_RUNS and part["content"] in harmless
        if part["type"] == "Replace"
        else part["type"] in _LOCAL_NORMALIZERS
        for part in normalizers
    )


def _split(pre_tokenizers: Iterable[dict[str, Any]]) -> bool:
    """Whether the first that sees the blank splits there. Those behind it are given the pieces one by one."""
    return next((_splits(part) for part in pre_tokenizers if part["type"] not in _ISOLATING), False)


def _splits(pre_tokenizer: dict[str, Any]) -> bool:
    match pre_tokenizer["type"]:
        case "Metaspace":
            return pre_tokenizer.get("split", True)
        case "ByteLevel":  # with GPT-2's own expression, built in
            return pre_tokenizer.get("use_regex", True)
        case "Split":
            is_known = pre_tokenizer["pattern"].get("Regex") in _KNOWN_PATTERNS
            return is_known and pre_tokenizer["behavior"] == "Isolated" and not pre_tokenizer["invert"]
        case name:
            return name in _SPLITTING


def _forms(token: Any, normalizer: Normalizer | None) -> list[str]:
    """What is looked for in texts: as it is written, and in normalized ones (one letter's form can hold blanks)."""
    if normalizer is None or not token.normalized:
        return [token.content]
    return [token.content, normalizer.normalize_str(token.content).strip()]


def _holds_blank(form: str) -> bool:
    return any(character.isspace() for character in form)
