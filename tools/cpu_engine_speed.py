"""Measure the CPU engine against sentence-transformers, one thread each: a short text, mixed lengths, equal lengths.

    python tools/cpu_engine_speed.py MODEL_FOLDER

Times are CPU time of the thread that computes, tokenization included, so that a busy machine does little harm.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.outputs import OutputLayout, StepResult
from rosebed.core.types import Batch, Sequence
from rosebed.rose.attention.registry import create_attention
from rosebed.rose.cpu_engine import TOKEN_BUDGET
from rosebed.rose.eager import EagerForward, StepRunner
from rosebed.rose.loader import load_model
from rosebed.rose.ops import onednn, reference
from rosebed.rose.ops.base import Ops
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "someone", "plays", "guitar")
REPEATS = 5


class Rosebed:
    """The engine without its thread: texts in, vectors dropped."""

    def __init__(self, folder: Path, ops: Ops) -> None:
        spec = resolve_model_spec(CheckpointFiles.read(folder))
        self.tokenizer = TextTokenizer.load(spec)
        self.model = load_model(spec, ops, device=torch.device("cpu"), dtype=torch.float32)
        if ops is onednn:
            onednn.pack(self.model.model)
        self.runner = StepRunner(
            self.model, EagerForward(self.model, create_attention("sdpa", self.model.model.attention_spec))
        )

    def embed(self, texts: list[str]) -> None:
        for batch in batches(self.sequences(texts)):
            layout = OutputLayout.plan(batch, self.model.outputs)
            self.runner.run(batch, StepResult(layout=layout, buffer=np.empty(layout.num_bytes, np.uint8)))

    def sequences(self, texts: list[str]) -> list[Sequence]:
        return [
            Sequence(token_ids=one.token_ids, token_type_ids=one.token_type_ids, pool_spans=one.pool_spans)
            for one in self.tokenizer.tokenize(texts, TokenizeOptions(truncate=True))
        ]


def batches(sequences: list[Sequence]) -> Iterator[Batch]:
    """Of at most TOKEN_BUDGET tokens, longest sequences first, as `Embedder` makes them."""
    waiting: list[Sequence] = []
    for sequence in sorted(sequences, key=lambda sequence: -sequence.num_tokens):
        if waiting and sum(one.num_tokens for one in waiting) + sequence.num_tokens > TOKEN_BUDGET:
            yield Batch.pack(waiting)
            waiting = []
        waiting.append(sequence)
    yield Batch.pack(waiting)


def cases() -> Iterator[tuple[str, list[str]]]:
    rng = np.random.default_rng(1)
    heavy_tailed = np.minimum((rng.pareto(1.2, 256) * 12 + 4).astype(int), 250)
    yield "one text of 10 tokens", ["A man is playing a guitar on stage."]
    yield "256 texts of mixed lengths", [" ".join(rng.choice(WORDS, count)) for count in heavy_tailed]
    for length in (16, 128, 256):
        yield f"{4096 // length} texts of {length} tokens", [" ".join(["guitar"] * (length - 2))] * (4096 // length)


def medians_ms(calls: Iterable[Callable[[], object]]) -> list[float]:
    """Each call's median, all of them taking turns."""
    times = [[cpu_ms(call) for call in calls] for _ in range(REPEATS + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def cpu_ms(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1e3


def main(folder: str) -> None:
    torch.set_num_threads(1)
    engine, plain = Rosebed(Path(folder), onednn), Rosebed(Path(folder), reference)
    other = SentenceTransformer(folder, device="cpu")
    print(f"{'CPU ms':28} {'rosebed':>9} {'plain ops':>9} {'s-t':>9} {'ratio':>6} {'tokens/s':>9}")
    for name, texts in cases():
        ours, reference_ops, theirs = medians_ms(
            [
                lambda texts=texts: engine.embed(texts),
                lambda texts=texts: plain.embed(texts),
                lambda texts=texts: other.encode(texts, show_progress_bar=False),
            ]
        )
        tokens = sum(sequence.num_tokens for sequence in engine.sequences(texts))
        print(
            f"{name:28} {ours:9.1f} {reference_ops:9.1f} {theirs:9.1f} {theirs / ours:6.2f} {tokens / ours * 1e3:9.0f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
