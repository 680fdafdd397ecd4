"""Opens a model folder's tokenizer with the library's own state switched off.

`tokenizer.json` decides, as it does for every server that reads it; settings of `tokenizer_config.json` that
transformers applies on top of it are applied here too. Knows nothing of prompts and limits.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from rosebed.core.checkpoint import read_json
from rosebed.core.errors import CheckpointError
from rosebed.core.json_fields import Json, flag, optional_text

_SETTINGS = "tokenizer_config.json"
_WORDPIECE_CLASSES = frozenset({"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast"})


def load_tokenizer(folder: Path, model_type: str) -> Tokenizer:
    """The folder's tokenizer, neither truncating nor padding.

    From `tokenizer.json`, or `vocab.txt` for BERT's WordPiece. CheckpointError if there is neither, or it is malformed.
    """
    settings = read_json(folder / _SETTINGS) or {}
    file = _tokenizer_file(folder, settings, model_type)
    if file.name == "tokenizer.json":
        tokenizer = _from_json(file)
        _apply_bert_settings(tokenizer, settings)
    else:
        tokenizer = _from_vocabulary(file, settings)
    # NOTE: MiniLM's file pads every text to 128 tokens and cuts it there.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _tokenizer_file(folder: Path, settings: Json, model_type: str) -> Path:
    if (file := folder / "tokenizer.json").is_file():
        return file
    if (file := folder / "vocab.txt").is_file() and _is_wordpiece(settings, model_type):
        return file
    raise CheckpointError(
        f"{folder} has no tokenizer.json (nor the vocab.txt of a BERT model); transformers makes one: "
        "AutoTokenizer.from_pretrained(…).save_pretrained(…)"
    )


def _from_json(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises bare Exception for every malformed file.
        raise CheckpointError(f"{path} cannot be read as a tokenizer: {error}") from error


def _apply_bert_settings(tokenizer: Tokenizer, settings: Json) -> None:
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, BertNormalizer):
        tokenizer.normalizer = BertNormalizer(
            clean_text=normalizer.clean_text,
            handle_chinese_chars=_flag(settings, "tokenize_chinese_chars", normalizer.handle_chinese_chars),
            strip_accents=_strip_accents(settings, normalizer.strip_accents),
            lowercase=_flag(settings, "do_lower_case", normalizer.lowercase),
        )


def _is_wordpiece(settings: Json, model_type: str) -> bool:
    tokenizer_class = optional_text(settings, "tokenizer_class", file=_SETTINGS)
    return tokenizer_class in _WORDPIECE_CLASSES if tokenizer_class else model_type in {"bert", "distilbert"}


def _from_vocabulary(path: Path, settings: Json) -> Tokenizer:
    """What transformers' BertTokenizer makes of a bare vocabulary: one token a line, its id the line number."""
    unknown, separator, padding, classifier, mask = (
        _token(settings, f"{name}_token", f"[{name.upper()}]") for name in ("unk", "sep", "pad", "cls", "mask")
    )
    try:
        vocabulary = WordPiece.read_file(str(path))
    except Exception as error:  # Bare Exception again.
        raise CheckpointError(f"{path} cannot be read as a vocabulary: {error}") from error
    missing = [token for token in (unknown, separator, padding, classifier, mask) if token not in vocabulary]
    if missing:
        raise CheckpointError(f"{path} lacks the special tokens {', '.join(missing)}")
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = BertNormalizer(
        handle_chinese_chars=_flag(settings, "tokenize_chinese_chars", True),
        strip_accents=_strip_accents(settings, None),
        lowercase=_flag(settings, "do_lower_case", True),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t in (unknown, separator, padding, classifier, mask)]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{classifier}:0 $A:0 {separator}:0",
        pair=f"{classifier}:0 $A:0 {separator}:0 $B:1 {separator}:1",
        special_tokens=[(token, vocabulary[token]) for token in (classifier, separator)],
    )
    return tokenizer


def _token(settings: Json, key: str, default: str) -> str:
    """A special token's text, which newer files wrap into an object."""
    value: Any = settings.get(key) or default
    content = value.get("content") if isinstance(value, dict) else value
    if not isinstance(content, str):
        raise CheckpointError(f"{_SETTINGS}: {key} should be a token, not {value!r}")
    return content


def _flag(settings: Json, key: str, default: bool) -> bool:
    return flag(settings, key, default=default, file=_SETTINGS)


def _strip_accents(settings: Json, default: bool | None) -> bool | None:
    """None lets the normaliser strip accents where it lowers."""
    return default if settings.get("strip_accents") is None else _flag(settings, "strip_accents", False)
