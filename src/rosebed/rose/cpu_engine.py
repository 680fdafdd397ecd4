"""The CPU engine: steps run one after another on a thread of their own and call back when done, but for short ones.

What computes releases the interpreter meanwhile, so the caller's loop goes on. Knows no queue and no request.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import torch
from torch import nn

from rosebed.core.counting import counted
from rosebed.core.engine import BatchLimits, Completion, EngineInfo
from rosebed.core.engine_statistics import EngineStatistics
from rosebed.core.errors import ConfigError, SetupError, StepFailed
from rosebed.core.model_spec import ModelSpec
from rosebed.core.outputs import OutputLayout, StepResult
from rosebed.core.types import Batch, Sequence, whole_span
from rosebed.rose.attention.registry import create_attention
from rosebed.rose.config import DtypeName, EngineConfig
from rosebed.rose.eager import EagerForward, StepRunner
from rosebed.rose.lazy import Arena, ArenaRing, FutureTensor, run_inline
from rosebed.rose.loader import LoadedModel, load_model
from rosebed.rose.ops import cpu, int8, onednn
from rosebed.rose.ops.base import Ops
from rosebed.rose.pages import keep_freed_memory
from rosebed.rose.short_steps import ShortSteps

MAX_IN_FLIGHT = 2
"""One step runs while the next is assembled."""
TOKEN_BUDGET = 1024
MAX_OUTPUT_BYTES = 64 << 20
INLINE_NS = 8_000_000
"""Steps that take no longer are run by whoever calls `step`: handing one over takes 0.1 ms and more."""

WARM_UP_S = 0.3
"""Of short steps, before the engine is ready."""
LONGEST_TRIED = 512
"""Tokens of the longest sequence whose kernels are made ahead of need."""
LONGEST_IDLE_S = 0.05
"""Of one step in idle time: who comes meanwhile waits for it."""

_DTYPES: Mapping[DtypeName, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.float32,
}
"""Of everything but the weights of products, which int8 alone rounds further."""

_logger = logging.getLogger(__name__)


def load_cpu_engine(spec: ModelSpec, config: EngineConfig) -> "CpuEngine":
    """Load `spec` on the CPU; `config` is resolved."""
    if config.attention not in ("auto", "sdpa"):
        raise ConfigError(f"--attention {config.attention!r} does not run on the CPU; sdpa does")
    # NOTE: OpenMP keeps a team of threads for each thread that computes. Where there was a second, of the thread that
    # loaded, steps of one short text took nearly twice as long. So weights are loaded on the thread that steps.
    executor = ThreadPoolExecutor(
        max_workers=1, thread_name_prefix="rose-step", initializer=_set_num_threads, initargs=(config.num_threads,)
    )
    try:
        loaded, runner = executor.submit(_load, spec, config).result()
    except BaseException:
        executor.shutdown(wait=False)
        raise
    return CpuEngine(loaded, runner, config, executor)


def _load(spec: ModelSpec, config: EngineConfig) -> tuple[LoadedModel, StepRunner]:
    keep_freed_memory()
    if not _tries_openvino(config):
        return _load_torch(spec, config)
    loaded = load_model(spec, cpu, device=torch.device("cpu"), dtype=torch.float32)
    try:
        return loaded, _compiled(loaded, config)
    except Exception as error:
        if config.cpu_backend == "openvino":
            if isinstance(error, SetupError):
                raise
            raise ConfigError(f"--cpu-backend openvino: {type(error).__name__}: {error}") from error
        _logger.warning("%s: torch computes, since OpenVINO does not: %s", spec.folder, error)
    return _load_torch(spec, config)


def _tries_openvino(config: EngineConfig) -> bool:
    if config.cpu_backend != "auto":
        return config.cpu_backend == "openvino"
    return config.dtype != "int8" and config.attention == "auto" and find_spec("openvino") is not None


def _compiled(loaded: LoadedModel, config: EngineConfig) -> StepRunner:
    from rosebed.rose.openvino.forward import OpenVinoForward
    from rosebed.rose.openvino.runner import OpenVinoRunner

    forward = OpenVinoForward(loaded, dtype=config.dtype, num_threads=torch.get_num_threads())
    return OpenVinoRunner(loaded, forward)


def _load_torch(spec: ModelSpec, config: EngineConfig) -> tuple[LoadedModel, StepRunner]:
    ops, pack = _operations(config.dtype)
    loaded = load_model(spec, ops, device=torch.device("cpu"), dtype=_DTYPES[config.dtype])
    pack(loaded.model)
    attention = create_attention("sdpa", loaded.model.attention_spec)
    attention.allocate(_limits(config))
    _logger.info("%s: computed by torch, %s", spec.folder, counted(torch.get_num_threads(), "thread"))
    return loaded, StepRunner(loaded, EagerForward(loaded, attention))


def _operations(dtype: DtypeName) -> tuple[Ops, Callable[[nn.Module], None]]:
    """What the model computes with, and what its weights are made ready by."""
    if dtype == "int8":
        if not int8.is_available():
            raise ConfigError("--dtype int8: this build of torch has no quantized products for this processor")
        return int8, int8.pack
    return (onednn, onednn.pack) if onednn.is_available() else (cpu, lambda _: None)


class CpuEngine:
    """`Engine` on the CPU. `step` is called from one thread at a time."""

    def __init__(
        self, loaded: LoadedModel, runner: StepRunner, config: EngineConfig, executor: ThreadPoolExecutor
    ) -> None:
        """Steps run on the one thread of `executor`, which is the engine's from now on."""
        limits = _limits(config)
        self._info = replace(loaded.engine_info(limits, max_in_flight=MAX_IN_FLIGHT), dtype=config.dtype)
        self._runner = runner
        self._arenas = ArenaRing(MAX_IN_FLIGHT)
        self._short = ShortSteps(INLINE_NS)
        self._last: Future[StepResult] | None = None
        self._untried = deque(range(1, min(LONGEST_TRIED, self._info.max_length, limits.tokens) + 1))
        """Lengths of which no step has been run ahead of need."""
        self._executor = executor

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def completion(self) -> Completion:
        return Completion.CALLBACK

    @property
    def separate_lanes(self) -> bool:
        """No: one step at a time uses all cores."""
        return False

    def step(self, batch: Batch) -> FutureTensor:
        arena = self._arenas.acquire()
        submit = run_inline if self._may_run_inline(batch.num_tokens) else self._executor.submit
        self._last = submit(self._run, batch, arena)
        return FutureTensor(self._last, lambda: self._arenas.give_back(arena))

    def _may_run_inline(self, num_tokens: int) -> bool:
        """Whether a step of so many is short enough for that, and would not have to wait."""
        is_waiting = self._last is not None and not self._last.done()
        return self._runner.runs_on_any_thread and not is_waiting and self._short.holds(num_tokens)

    def warm_up(self) -> None:
        """The longest step, then one of each length from the shortest up, for a moment: kernels are made at first
        use, and then kept, for each number of tokens."""
        deadline_s = time.monotonic() + WARM_UP_S
        self._try(min(self._info.limits.tokens, self._info.max_length))
        while self._untried and time.monotonic() < deadline_s:
            self._try(self._untried.popleft())

    def idle(self) -> bool:
        """The next length; until their steps take too long for anybody who comes to wait for one."""
        if not self._untried:
            return False
        if self._try(self._untried.popleft()) > LONGEST_IDLE_S:
            self._untried.clear()
        return bool(self._untried)

    def _try(self, num_tokens: int) -> float:
        """Run a step of one sequence; the seconds it took."""
        started_s = time.monotonic()
        ids, outputs = np.zeros(num_tokens, np.int32), self._info.main_output
        lazy = self.step(Batch.pack([Sequence(token_ids=ids, pool_spans=whole_span(num_tokens), outputs=outputs)]))
        try:
            lazy.result()
        finally:
            lazy.release()
        return time.monotonic() - started_s

    def statistics(self) -> EngineStatistics:
        """None: the CPU has no graphs."""
        return {}

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    def _run(self, batch: Batch, arena: Arena) -> StepResult:
        started = time.perf_counter_ns()
        try:
            layout = OutputLayout.plan(batch, self._info.outputs)
            result = StepResult(layout=layout, buffer=arena.take(layout.num_bytes))
            self._runner.run(batch, result)
        except Exception as error:
            raise StepFailed(f"the forward pass failed: {type(error).__name__}: {error}") from error
        elapsed_ns = time.perf_counter_ns() - started
        self._short.observe(batch.num_tokens, elapsed_ns)
        return StepResult(layout=layout, buffer=result.buffer, device_ns=elapsed_ns)


def _set_num_threads(num_threads: int | None) -> None:
    if num_threads is not None:
        torch.set_num_threads(num_threads)


def _limits(config: EngineConfig) -> BatchLimits:
    """As many sequences and spans as there are tokens: on the CPU neither costs by itself."""
    token_budget = config.token_budget or TOKEN_BUDGET
    return BatchLimits(tokens=token_budget, sequences=token_budget, spans=token_budget, output_bytes=MAX_OUTPUT_BYTES)
