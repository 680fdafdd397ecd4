"""Where a step's time goes, by kernel: `python bench/kernels.py FOLDER --tokens 1x128 --tokens 8x512 --out FILE`.

A step is run once kernel by kernel with a marker behind each operation, which tells the role of every kernel, and then
replayed as a graph under torch's profiler, which tells their times. Where the profiler sees other kernels inside the
graph, or none, kernels launched one by one are timed instead, and the table says so. Markdown goes to the standard
output, figures to FILE.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from kernel_trace import (
    ATTENTION,
    LAYER_ROLES,
    Kernel,
    RoleRecorder,
    Row,
    kernels_in,
    markdown,
    roles_of,
    rows_of,
    split_steps,
)
from torch.profiler import ProfilerActivity, profile

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.types import Batch, Lane, Sequence, whole_span
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig

REPEATS = 20
MARKER_CYCLES = 1


class Marked:
    """Anything whose methods launch kernels, with a marker behind each call; `operation` renames all of them."""

    def __init__(self, target: Any, recorder: RoleRecorder, operation: str | None = None) -> None:
        self._target, self._recorder, self._operation = target, recorder, operation

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def marked(*arguments: Any, **named: Any) -> Any:
            answer = method(*arguments, **named)
            self._recorder.note(self._operation or name)
            torch.cuda._sleep(MARKER_CYCLES)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
            return answer

        return marked


class MarkedBackend:
    """A `GraphAttention` whose kernels are marked, those that binding launches too."""

    def __init__(self, backend: Any, recorder: RoleRecorder) -> None:
        self._backend, self._recorder = backend, recorder

    def plan(self, *arguments: Any) -> None:
        self._backend.plan(*arguments)

    def bind(self, *arguments: Any) -> Any:
        bound = Marked(self._backend, self._recorder, ATTENTION).bind(*arguments)
        return Marked(bound, self._recorder, ATTENTION)


@contextmanager
def marked(engine: Any, recorder: RoleRecorder) -> Generator[None]:
    """Every operation of the engine's model is followed by a marker."""
    backends = engine.slots[Lane.ONLINE].attentions.backends
    loaded = engine._loaded  # noqa: SLF001 - what runs is nobody else's business
    modules = [m for part in (loaded.model, loaded.dense) for m in part.modules() if "ops" in vars(m)]
    kept, kept_backends = [module.ops for module in modules], dict(backends)
    for module in modules:
        module.ops = Marked(module.ops, recorder)
    backends.update({name: MarkedBackend(backend, recorder) for name, backend in kept_backends.items()})
    try:
        yield
    finally:
        backends.update(kept_backends)
        for module, ops in zip(modules, kept, strict=True):
            module.ops = ops


def traced(work: Callable[[], object], repeats: int) -> list[Kernel]:
    """The kernels of `repeats` calls, one after another."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return kernels_in(json.loads(path.read_text()))


def batch_of(case: str, vocab_size: int) -> Batch:
    """SEQUENCESxTOKENS of random ids."""
    num_sequences, length = map(int, case.split("x"))
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab_size, (num_sequences, length)).astype(np.int32)
    return Batch.pack(Sequence(token_ids=row, pool_spans=whole_span(length)) for row in ids)


def measure(engine: Any, batch: Batch) -> tuple[list[Row], str, float]:
    """(rows, what was timed, µs of the device for a step without a profiler)."""
    graphs = engine.slots[Lane.ONLINE].graphs

    def step() -> int:
        lazy = engine.step(batch)
        device_ns = lazy.result().device_ns
        lazy.release()
        return device_ns

    graphs._lazy = False  # noqa: SLF001 - kernel by kernel, until it is captured below
    step()  # compiles
    recorder = RoleRecorder()
    with marked(engine, recorder):
        named = roles_of(traced(step, 1), recorder.roles)
    graphs._lazy = True  # noqa: SLF001
    step()  # captures
    device_us = median(step() for _ in range(REPEATS)) / 1e3
    for how, is_lazy in (("replayed", True), ("kernel by kernel", False)):
        if not is_lazy:
            graphs._lazy = False  # noqa: SLF001
            graphs._steps.clear()  # noqa: SLF001
        try:
            steps = split_steps(traced(step, REPEATS), REPEATS)
        except ValueError:
            continue
        if len(steps[0]) == len(named):
            return rows_of([role for role, _ in named], steps), how, device_us
    raise SystemExit("the profiler sees other kernels in each step: nothing to tell")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", action="append", required=True, metavar="SEQUENCESxTOKENS")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    spec = resolve_model_spec(CheckpointFiles.read(arguments.model))
    config = EngineConfig(
        device="cuda",
        dtype=arguments.dtype,
        attention=arguments.attention,
        graphs="lazy",
        token_budget=8192,
        bulk_slot=False,
    )
    engine: Any = load_engine(spec, config)
    num_layers = int(spec.config.get("num_hidden_layers") or spec.config["n_layers"])
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "model": arguments.model.name,
        "dtype": engine.info.dtype,
        "attention": arguments.attention,
        "cases": [],
    }
    for case in arguments.tokens:
        rows, how, device_us = measure(engine, batch_of(case, engine.info.vocab_size))
        total = sum(row.us for row in rows)
        print(f"\n### {arguments.model.name}, {case}, {how}: {device_us:.0f} µs a step, {total:.0f} as profiled\n")
        print(markdown(rows, num_layers))
        report["cases"].append(
            {
                "tokens": case,
                "timed": how,
                "device_us": round(device_us, 1),
                "profiled_us": round(total, 1),
                "kernels": [
                    asdict(row)
                    | {"us": round(row.us, 2), "share": round(row.us / total, 4)}
                    | ({"us_per_layer": round(row.us / num_layers, 3)} if row.role in LAYER_ROLES else {})
                    for row in rows
                ],
            }
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
