"""Measure tokenization: one request of 8, 128 and 512 tokens, and many documents, per model folder and encoder.

    python tools/tokenization_speed.py TEXT_FILE MODEL_FOLDER...

TEXT_FILE holds one document a line. Times are CPU time of the calling thread, so that a busy machine does little harm;
each text is new to the tokenizer, its words mostly are not: that is how requests are.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.text.encoders import Encoder, TokenizersEncoder, choose_encoder
from rosebed.text.loading import load_tokenizer
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

LENGTHS = (8, 128, 512)
REQUESTS = 200
CUT = TokenizeOptions(truncate=True)


def main(text_file: str, *folders: str) -> None:
    documents = Path(text_file).read_text(encoding="utf-8").splitlines()
    print(f"{'folder':24} {'encoder':18} {'1x8':>8} {'1x128':>8} {'1x512':>8} µs   Mtokens/s/core")
    for folder in map(Path, folders):
        for encoder, tokenizer in tokenizers(folder):
            medians = [median_us(tokenizer, pieces(documents, encoder, length)) for length in LENGTHS]
            columns = " ".join(f"{value:8.1f}" for value in medians)
            print(f"{folder.name:24} {type(encoder).__name__:18} {columns}      {bulk(tokenizer, documents):6.2f}")


def tokenizers(folder: Path) -> Iterator[tuple[Encoder, TextTokenizer]]:
    """The tokenizer of the folder with the library that defines the format, and with the one chosen, if another."""
    spec = resolve_model_spec(CheckpointFiles.read(folder), ModelOverrides(pooling="mean"))
    loaded = load_tokenizer(folder, spec.model_type)
    chosen, reference = choose_encoder(folder, loaded), TokenizersEncoder(loaded)
    for encoder in [reference] if isinstance(chosen, TokenizersEncoder) else [reference, chosen]:
        yield encoder, TextTokenizer(loaded, encoder, spec, max_length=spec.max_length)


def pieces(documents: list[str], encoder: Encoder, length: int) -> Iterator[str]:
    """Texts of about `length` tokens, from ever new places."""
    words = " ".join(documents).split()
    size = max(1, round(length * len(words) / len(encoder.encode([" ".join(words)])[0])))
    for start in range(0, len(words), max(1, (len(words) - size) // (REQUESTS + 50))):
        yield " ".join(words[start : start + size])


def median_us(tokenizer: TextTokenizer, texts: Iterator[str]) -> float:
    for text in islice(texts, 50):
        tokenizer.tokenize([text], CUT)
    return statistics.median(cpu_s(lambda text=text: tokenizer.tokenize([text], CUT)) for text in texts) * 1e6


def bulk(tokenizer: TextTokenizer, documents: list[str]) -> float:
    """Million tokens per second of one core over all documents, the first fifth of them left to warm up."""
    warm = len(documents) // 5
    tokenizer.tokenize(documents[:warm], CUT)
    start = time.process_time()
    results = tokenizer.tokenize(documents[warm:], CUT)
    seconds = time.process_time() - start
    return sum(result.num_tokens_before or result.num_tokens for result in results) / seconds / 1e6


def cpu_s(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
