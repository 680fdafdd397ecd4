"""What online requests wait for while bulk work never ends: `python bench/lanes.py FOLDER --out lanes.json`.

The real scheduler and step loop run on the real engine, without a wire: bulk requests of 100 sequences are always
queued, and single online sequences arrive at random times. Once each with the lanes in slots of their own, without bulk
work, and with both lanes in one slot; printed are the online latencies, from submission to the answer, and how many
bulk sequences a second were computed beside.
"""

import argparse
import asyncio
import gc
import json
import time
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

BULK_REQUESTS = 4
BULK_SEQUENCES = 100
WARM_UP = 20
"""Online requests that are not counted."""


class Load:
    """Both lanes' requests on one step loop."""

    def __init__(self, engine: Any, arguments: argparse.Namespace) -> None:
        self._loop = StepLoop(engine, TulipConfig(), metrics=TulipMetrics(), on_fatal=print)
        self._rng = np.random.default_rng(0)
        self._vocab_size = engine.info.vocab_size
        self._arguments = arguments
        self.latencies_ms: list[float] = []
        self.bulk_done = 0
        self._stopping = False

    def _sequences(self, count: int, length: int) -> tuple[Sequence, ...]:
        ids = self._rng.integers(0, self._vocab_size, (count, length)).astype(np.int32)
        return tuple(Sequence(token_ids=row, pool_spans=whole_span(length)) for row in ids)

    def _submit(self, sequences: tuple[Sequence, ...], lane: Lane, on_done: Callable[[RequestState], None]) -> None:
        self._loop.scheduler.submit(sequences, on_done=on_done, lane=lane)
        self._loop.wake()

    def _keep_busy(self, sequences: tuple[Sequence, ...]) -> None:
        def again(_state: RequestState) -> None:
            self.bulk_done += len(sequences)
            if not self._stopping:
                self._submit(sequences, Lane.BULK, again)

        self._submit(sequences, Lane.BULK, again)

    async def run(self, *, with_bulk: bool) -> float:
        """Seconds that the online requests took."""
        if with_bulk:
            for _ in range(BULK_REQUESTS):
                self._keep_busy(self._sequences(BULK_SEQUENCES, self._arguments.bulk_length))
        sequences = self._sequences(1, self._arguments.length)
        answers: list[asyncio.Future[None]] = []
        started = time.perf_counter()
        for _ in range(self._arguments.requests):
            await asyncio.sleep(float(self._rng.exponential(1 / self._arguments.rate)))
            answered = asyncio.get_running_loop().create_future()
            answers.append(answered)
            self._submit(sequences, Lane.ONLINE, self._timed(time.perf_counter(), answered))
        await asyncio.gather(*answers)
        elapsed = time.perf_counter() - started
        self._stopping = True
        while not self._loop.scheduler.idle:  # noqa: ASYNC110 - the scheduler tells nobody
            await asyncio.sleep(0.01)
        return elapsed

    def _timed(self, submitted: float, answered: asyncio.Future[None]) -> Callable[[RequestState], None]:
        def on_done(_state: RequestState) -> None:
            self.latencies_ms.append((time.perf_counter() - submitted) * 1e3)
            answered.set_result(None)

        return on_done


async def measure(engine: Any, arguments: argparse.Namespace, *, with_bulk: bool) -> dict[str, float]:
    load = Load(engine, arguments)
    elapsed = await load.run(with_bulk=with_bulk)
    kept = load.latencies_ms[WARM_UP:]
    figures = {f"p{p}_ms": round(float(np.percentile(kept, p)), 2) for p in (50, 90, 99, 100)}
    return figures | {"bulk_per_s": round(load.bulk_done / elapsed, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--length", type=int, default=128, help="tokens of an online sequence")
    parser.add_argument("--bulk-length", type=int, default=512)
    parser.add_argument("--rate", type=float, default=100.0, help="online requests a second")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--token-budget", type=int, help="none measures it")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    spec = resolve_model_spec(CheckpointFiles.read(arguments.model))
    cases: dict[str, dict[str, float]] = {}
    print("| | p50 ms | p90 | p99 | most | bulk sequences/s |\n|---|---|---|---|---|---|")
    for bulk_slot in (True, False):
        config = EngineConfig(
            device="cuda", token_budget=arguments.token_budget, bulk_slot=bulk_slot, refine_graphs=False
        )
        engine = load_engine(spec, config)
        engine.warm_up()
        gc.collect()
        gc.freeze()
        for with_bulk in (True, False) if bulk_slot else (True,):
            name = ("lanes apart" if bulk_slot else "one slot") if with_bulk else "no bulk work"
            cases[name] = uvloop.run(measure(engine, arguments, with_bulk=with_bulk))
            print(f"| {name} | {' | '.join(map(str, cases[name].values()))} |")
        budget = engine.info.limits.tokens
        engine.close()
        gc.unfreeze()
        del engine
        gc.collect()
        torch.cuda.empty_cache()
    if arguments.out:
        report = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "token_budget": budget}
        arguments.out.write_text(json.dumps(report | vars(arguments) | {"cases": cases}, default=str) + "\n")


if __name__ == "__main__":
    main()
