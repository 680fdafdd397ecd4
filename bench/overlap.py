"""How long a GPU idles between steps while work is queued: `python bench/overlap.py FOLDER --out overlap.json`.

The real scheduler and step loop run on the real engine, without a wire: four requests of 100 sequences are always
queued. Every step's begin and end are CUDA events around its copies and its graph, on one clock. The gaps between the
end of a step and the begin of the next are printed; FILE gets the times of the last steps.
"""

import argparse
import asyncio
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvloop

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.types import Lane, Sequence, whole_span
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.request import RequestState
from rosebed.tulip.step_loop import StepLoop

NUM_REQUESTS = 4
SEQUENCES = 100
KEPT = 40
"""Steps whose times are written."""


class TimedEngine:
    """An engine that notes when each step began and ended on the device, in ms after it was made."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._origin = torch.cuda.Event(enable_timing=True)
        self._origin.record(engine.slots[Lane.ONLINE].stream)
        self.steps: list[tuple[float, float, int]] = []
        """(begin, end, tokens)"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, batch: Any) -> Any:
        lazy = self._engine.step(batch)
        entry, result = lazy._entry, lazy.result  # noqa: SLF001 - times are nobody's business but this script's

        def timed() -> Any:
            answer = result()
            begin_ms, end_ms = (self._origin.elapsed_time(event) for event in (entry.begun, entry.done))
            self.steps.append((begin_ms, end_ms, batch.num_tokens))
            return answer

        lazy.result = timed
        return lazy


async def run(engine: TimedEngine, *, length: int, num_steps: int) -> None:
    """Keep `NUM_REQUESTS` queued until `num_steps` are done."""
    loop = StepLoop(engine, TulipConfig(), metrics=TulipMetrics(), on_fatal=print)  # pyright: ignore[reportArgumentType]
    rng = np.random.default_rng(0)
    vocab_size = engine.info.vocab_size
    requests = [
        tuple(
            Sequence(token_ids=rng.integers(0, vocab_size, length).astype(np.int32), pool_spans=whole_span(length))
            for _ in range(SEQUENCES)
        )
        for _ in range(NUM_REQUESTS)
    ]
    done = asyncio.Event()

    def again(sequences: tuple[Sequence, ...]) -> Callable[[RequestState], None]:
        def on_done(_state: RequestState) -> None:
            if len(engine.steps) >= num_steps:
                done.set()
            else:
                loop.scheduler.submit(sequences, on_done=on_done)
                loop.wake()

        return on_done

    gc.collect()
    gc.freeze()
    for sequences in requests:
        loop.scheduler.submit(sequences, on_done=again(sequences))
    loop.wake()
    await done.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    engine: Any = load_engine(
        resolve_model_spec(CheckpointFiles.read(arguments.model)), EngineConfig(device="cuda", token_budget=8192)
    )
    engine.warm_up()
    timed = TimedEngine(engine)
    uvloop.run(run(timed, length=arguments.length, num_steps=arguments.steps))
    steps = np.array(timed.steps)[20:]  # the first ones queue up
    gaps_us = (steps[1:, 0] - steps[:-1, 1]) * 1e3
    busy = (steps[:, 1] - steps[:, 0]).sum() / (steps[-1, 1] - steps[0, 0])
    figures = {f"p{p}": round(float(np.percentile(gaps_us, p)), 1) for p in (50, 90, 99, 100)}
    print(
        f"{len(steps)} steps of {np.median(steps[:, 2]):.0f} tokens, {np.median(steps[:, 1] - steps[:, 0]):.2f} ms each"
    )
    print(f"gap between steps, µs: {figures}; busy {busy:.2%}")
    if arguments.out:
        report = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "gap_us": figures,
            "busy": busy,
            "steps_ms": [[round(float(t), 3) for t in step] for step in steps[-KEPT:]],
        }
        arguments.out.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
