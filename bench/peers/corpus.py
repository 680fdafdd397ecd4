"""Rosebed and sentence-transformers as libraries on one CPU: a corpus, arrivals in order, one short text.

    python bench/peers/corpus.py MODEL_FOLDER --out bench/results/cpu-corpus.jsonl

Each library runs in a process of its own with the same number of threads, and they take turns, pass by pass, so that
what else the machine does hits all alike. Lengths are of `rosebed bench`'s mixed trace, cut to what the model takes.

- A corpus: all texts in one call. sentence-transformers sorts them by length too, and gets the batch size that it was
  fastest with in a pass beforehand.
- Arrivals in order: the next 8 or 32 texts in each call, as they would have arrived while the last call was computed.
- One short text: a call of its own, 11 tokens.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from libraries import BATCH_SIZES, SHORT_TEXT
from processors import Ticks

from rosebed.bench.lengths import MIXED, read_trace
from rosebed.bench.words import WORDS

SEED = 1
ARRIVED = (8, 32)
"""Texts that share a call."""
SHORT_CALLS = 30
"""Of one short text, in a pass."""


@dataclass(frozen=True, slots=True)
class Library:
    """One library's process, which answers a line for each line it reads."""

    name: str
    process: "subprocess.Popen[str]"

    @classmethod
    def start(cls, name: str, folder: Path, *, threads: int) -> "Library":
        """`name` is sentence-transformers, or rosebed and the type it computes in."""
        command = [sys.executable, str(Path(__file__).with_name("libraries.py")), name, str(folder), str(threads)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return cls(name, process)

    def seconds(self, texts: Sequence[str], *, at_once: int, batch_size: int = 32) -> list[float]:
        """Seconds of each call, with up to `at_once` texts in each."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([texts, at_once, batch_size]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def best_batch_size(self, texts: Sequence[str]) -> int:
        """The one with which it embeds all of `texts` fastest; of no concern to Rosebed."""
        if self.name != "sentence-transformers":
            return 32
        times = {size: sum(self.seconds(texts, at_once=len(texts), batch_size=size)) for size in BATCH_SIZES}
        print({size: round(taken, 2) for size, taken in times.items()}, flush=True)
        return min(times, key=lambda size: times[size])


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is measured, and where it is written."""

    model: str
    texts: Sequence[str]
    threads: int
    out: Path

    def run(self, libraries: Sequence[Library], rounds: int) -> None:
        sizes = {library.name: library.best_batch_size(self.texts) for library in libraries}
        for number in range(rounds):
            for label, scenario, texts, at_once, arrived in self._cases():
                for library in libraries:
                    size = at_once if arrived else sizes[library.name]
                    before = Ticks.now()
                    taken = library.seconds(texts, at_once=at_once, batch_size=size)
                    # What others use of processors that these threads leave idle does them no harm.
                    idle = 1 - min(1.0, self.threads / (os.cpu_count() or 1))
                    others = max(0.0, Ticks.now().others_since(before) - idle)
                    case = self._case(label, taken, len(texts))
                    line = {"peer": library.name, "over": f"in process, threads: {self.threads}", "round": number}
                    line |= {"model": self.model, "scenario": scenario, "others": round(others, 3), "cases": [case]}
                    if library.name == "sentence-transformers":
                        line["batch_size"] = size
                    with self.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(number, library.name, label, case["latency_ms"], f"others {others:.0%}", flush=True)

    def _cases(self) -> list[tuple[str, str, Sequence[str], int, bool]]:
        """Label, scenario, texts, how many share a call, and whether those are one batch, as they arrived."""
        lengths = f"{len(self.texts)} of mixed lengths"
        return [
            (f"corpus, {lengths}, sorted", "throughput", self.texts, len(self.texts), False),
            *((f"arrivals in order, {count} at a time", "throughput", self.texts, count, True) for count in ARRIVED),
            ("one short text", "latency", [SHORT_TEXT] * SHORT_CALLS, 1, False),
        ]

    def _case(self, label: str, taken: Sequence[float], num_texts: int) -> dict[str, Any]:
        latency = {"p50": median(taken) * 1e3, "p99": float(np.percentile(taken, 99)) * 1e3}
        return {"label": label, "input": "text", "latency_ms": latency, "sequences_per_s": num_texts / sum(taken)}


def mixed_texts(count: int, max_length: int) -> list[str]:
    """Texts of the trace's lengths, in no order."""
    random = np.random.default_rng(SEED)
    lengths = np.array([tokens for request in read_trace(MIXED) for tokens in request.lengths])
    chosen = np.minimum(random.permutation(lengths)[:count], max_length)
    return [" ".join(random.choice(WORDS, max(1, length - 2))) for length in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("bench/results/cpu-corpus.jsonl"), help="to add lines to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--dtypes", default="float32,bfloat16,int8", help="that Rosebed computes in")
    arguments = parser.parse_args()
    names = [f"rosebed {dtype}" for dtype in arguments.dtypes.split(",")] + ["sentence-transformers"]
    libraries = [Library.start(name, arguments.folder, threads=arguments.threads) for name in names]
    texts = mixed_texts(arguments.texts, arguments.max_length)
    try:
        Comparison(arguments.folder.name, texts, arguments.threads, arguments.out).run(libraries, arguments.rounds)
    finally:
        for library in libraries:
            library.process.terminate()


if __name__ == "__main__":
    main()
