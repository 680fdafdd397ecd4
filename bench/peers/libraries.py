"""One library in a process of its own, for `corpus.py`: reads texts a line, answers with the seconds of each call."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Of which sentence-transformers gets its best."""
SHORT_TEXT = "A man is playing a guitar on stage."

Embed = Callable[[Sequence[str], int], object]
"""Texts, and how many make a batch, where that is for the caller to say."""


def rosebed(folder: Path, dtype: str, threads: int) -> Embed:
    """With the environment that Rosebed's command line sets."""
    from rosebed.cli import set_environment

    set_environment()
    from rosebed.embedder import Embedder
    from rosebed.rose.config import EngineConfig

    config = EngineConfig(device="cpu", dtype=dtype, num_threads=threads)  # pyright: ignore[reportArgumentType]
    embedder = Embedder(folder, config=config)
    return lambda texts, _: embedder.embed(texts)


def sentence_transformers(folder: Path, threads: int) -> Embed:
    """As it comes."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu")
    return lambda texts, size: model.encode(list(texts), batch_size=size, show_progress_bar=False)


def main(name: str, folder: str, threads: str) -> None:
    library, _, dtype = name.partition(" ")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints is an answer
    if library == "rosebed":
        embed = rosebed(Path(folder), dtype, int(threads))
    else:
        embed = sentence_transformers(Path(folder), int(threads))
    embed([SHORT_TEXT, "warm " * 100], 2)
    for line in sys.stdin:
        texts, at_once, batch_size = json.loads(line)
        taken: list[float] = []
        for start in range(0, len(texts), at_once):
            began_s = time.perf_counter()
            embed(texts[start : start + at_once], batch_size)
            taken.append(time.perf_counter() - began_s)
        print(json.dumps(taken), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
