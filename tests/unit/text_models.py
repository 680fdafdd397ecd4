"""Model folders with tiny tokenizers, made in a moment: WordPiece as BERT has it, byte-level BPE as Qwen has it."""

import json
from pathlib import Path
from typing import Any

from core_folders import BERT, QWEN3, XLM_R, minilm, write_folder
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.pre_tokenizers import ByteLevel, Metaspace
from tokenizers.processors import TemplateProcessing

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.text.loading import load_tokenizer
from rosebed.text.tokenizer import TextTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##b", "a", "b", "c", "d", "e", "query", ":", "Ä", "ä", "A"]
"""id = place in the list: [CLS] 2, [SEP] 3, a 6, b 7, c 8, d 9, e 10."""

EOS = 256


Files = dict[str, Any]


def bert_files(more: Files | None = None) -> Files:
    """A MiniLM-like folder whose tokenizer knows WORDS; some files replaced or added."""
    config = BERT | {"vocab_size": len(WORDS)}
    return minilm(**{"config.json": config, "vocab.txt": "\n".join(WORDS)} | (more or {}))


def bert_folder(folder: Path, more: Files | None = None) -> Path:
    """`bert_files` on disk, with a lowering tokenizer.json that pads to 16 and cuts at 8, as published ones do."""
    tokenizer = load_tokenizer(write_folder(folder, bert_files()), "bert")
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(8)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_folder(folder, bert_files(more))
    (folder / "vocab.txt").unlink()
    return folder


def qwen_folder(folder: Path, *, appends_eos: bool = True) -> Path:
    """A Qwen3-like folder whose tokens are bytes (id = byte's place in the byte alphabet) and an end token, 256."""
    tokenizer = Tokenizer(BPE({char: i for i, char in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    if appends_eos:
        tokenizer.post_processor = TemplateProcessing(
            single="$A <|endoftext|>",
            pair="$A:0 <|endoftext|>:0 $B:1 <|endoftext|>:1",
            special_tokens=[("<|endoftext|>", EOS)],
        )
    files = {"config.json": QWEN3 | {"vocab_size": 257}, "tokenizer.json": tokenizer.to_str()}
    return write_folder(folder, files)


def unigram_folder(folder: Path) -> Path:
    """An XLM-R-like folder of eight pieces: <s> 0, </s> 1, <unk> 2, ▁ 3, ▁a 4, a 5, b 6, ab 7."""
    scores = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("▁a", -2.0), ("a", -3.0), ("b", -3.0)]
    tokenizer = Tokenizer(Unigram([*scores, ("ab", -2.5)], unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    files = {"config.json": XLM_R | {"vocab_size": 8}, "tokenizer.json": tokenizer.to_str()}
    return write_folder(folder, files)


def spec_of(folder: Path) -> ModelSpec:
    return resolve_model_spec(CheckpointFiles.read(folder))


def bert(folder: Path, more: Files | None = None, *, max_length: int | None = None) -> TextTokenizer:
    return TextTokenizer.load(spec_of(bert_folder(folder, more)), max_length=max_length)


def qwen(folder: Path, *, appends_eos: bool = True) -> TextTokenizer:
    return TextTokenizer.load(spec_of(qwen_folder(folder, appends_eos=appends_eos)))


def edit_tokenizer(folder: Path, **changes: Any) -> Path:
    """Replace top-level keys of the folder's tokenizer.json."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder
