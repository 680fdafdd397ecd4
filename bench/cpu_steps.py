"""What one step takes on a CPU, by backend and type: every engine in turns, several rounds.

    python bench/cpu_steps.py FOLDER --threads 2

FOLDER is a checkpoint. torch's threads sleep while they wait, as under `rosebed serve`.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported

import numpy as np

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import Engine
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.core.types import Batch, Sequence, whole_span
from rosebed.rose import load_engine
from rosebed.rose.config import CpuBackend, DtypeName, EngineConfig

SHAPES = ((1, 11), (1, 16), (1, 64), (1, 256), (16, 11), (32, 64))
"""Sequences and their tokens."""
ENGINES: tuple[tuple[CpuBackend, DtypeName], ...] = (
    ("torch", "float32"),
    ("openvino", "float32"),
    ("torch", "bfloat16"),
    ("openvino", "bfloat16"),
    ("torch", "int8"),
)
WARM_UP = 5


def load(spec: ModelSpec, backend: CpuBackend, dtype: DtypeName, threads: int) -> Engine:
    budget = max(rows * length for rows, length in SHAPES)
    config = EngineConfig(device="cpu", cpu_backend=backend, dtype=dtype, num_threads=threads, token_budget=budget)
    engine = load_engine(spec, config)
    engine.warm_up()
    return engine


def measure(engine: Engine, rows: int, length: int, seconds: float) -> list[float]:
    """Milliseconds of each step."""
    ids = np.random.default_rng(0).integers(1000, engine.info.vocab_size, (rows, length), dtype=np.int32)
    sequences = [Sequence(token_ids=row, pool_spans=whole_span(length), outputs=engine.info.main_output) for row in ids]
    took_ms: list[float] = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s or len(took_ms) < 2 * WARM_UP:
        started_s = time.perf_counter()
        lazy = engine.step(Batch.pack(sequences))
        lazy.result()
        lazy.release()
        took_ms.append((time.perf_counter() - started_s) * 1e3)
    return took_ms[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkpoint")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each engine, shape and round")
    arguments = parser.parse_args()
    spec = resolve_model_spec(CheckpointFiles.read(arguments.folder))
    engines = [load(spec, backend, dtype, arguments.threads) for backend, dtype in ENGINES]
    print(f"| step, p50 ms | {' | '.join(f'{backend} {dtype}' for backend, dtype in ENGINES)} |")
    print("|---" * (len(ENGINES) + 1) + "|")
    for rows, length in SHAPES:
        took_ms: list[list[float]] = [[] for _ in engines]
        for _ in range(arguments.rounds):
            for engine, times in zip(engines, took_ms, strict=True):
                times.extend(measure(engine, rows, length, arguments.seconds))
        print(f"| {rows} × {length} | {' | '.join(f'{np.median(times):.2f}' for times in took_ms)} |", flush=True)
    for engine in engines:
        engine.close()


if __name__ == "__main__":
    main()
