"""`FakeEngine`: an `Engine` of pure numpy whose vectors, step times and faults a test decides."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from rosebed.core.engine import Completion, EngineInfo
from rosebed.core.engine_statistics import EngineStatistics
from rosebed.core.errors import Unavailable
from rosebed.core.outputs import OutputLayout, RowStatus, StepResult
from rosebed.core.types import Batch, Lane
from rosebed.testing.faults import Faults
from rosebed.testing.vectors import expected_rows, fake_info

HISTORY = 10_000
"""Batches an engine remembers."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A model of how long a step takes."""

    base_s: float = 0.0
    per_token_s: float = 0.0

    def of(self, batch: Batch) -> float:
        """Seconds that `batch` takes on an otherwise idle device."""
        return self.base_s + self.per_token_s * batch.num_tokens


class FakeStep:
    """A step of a `FakeEngine`; a `LazyTensor`."""

    def __init__(self, engine: "FakeEngine", batch: Batch, due_s: float) -> None:
        self.batch = batch
        self.due_s = due_s
        self._released = False
        self._engine = engine
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def ready(self) -> bool:
        if not self._done.is_set() and self._engine.is_due(self):
            self.finish()
        return self._done.is_set()

    def finish(self) -> None:
        """The device is done with this step."""
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def result(self) -> StepResult:
        while not self.ready():
            if self._engine.closed.is_set():
                raise Unavailable("the fake engine was closed")
            self._done.wait(0.001)
        return self._engine.compute(self.batch)

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._engine.num_unreleased -= 1

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()


class FakeEngine:
    """Computes `expected_rows`. Steps take `step_time` each, one after the other, or end by hand with `finish_next`.

    A POLL engine's steps end by the clock; a CALLBACK engine's end on a thread of its own, as on a real CPU. With
    separate lanes, steps of the two take their time beside each other.
    """

    def __init__(
        self,
        info: EngineInfo | None = None,
        *,
        completion: Completion = Completion.CALLBACK,
        separate_lanes: bool = False,
        step_time: StepTime | None = None,
        by_hand: bool = False,
        faults: Faults | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info = info or fake_info()
        self.completion = completion
        self.separate_lanes = separate_lanes
        self.batches: deque[Batch] = deque(maxlen=HISTORY)
        """The latest batches stepped, oldest first."""
        self.num_unreleased = 0
        """Steps whose buffer was not given back yet."""
        self.warmed_up = False
        self.idle_work = 0
        """How often `idle` still has something to do."""
        self.idle_calls: list[float] = []
        """When `idle` was called, by `time.monotonic`."""
        self.figures: EngineStatistics = {}
        """What `statistics` returns: a test sets it."""
        self.closed = threading.Event()
        self._step_time = step_time or StepTime()
        self.by_hand = by_hand
        """Steps end only with `finish_next`; may be changed while none is unfinished."""
        self._faults = faults or Faults()
        self._clock = clock
        self._steps: list[FakeStep] = []
        self._busy_until_s = dict.fromkeys(Lane, 0.0)
        self._hung = dict.fromkeys(Lane, False)
        self._dead = False
        self._workers = {lane: ThreadPoolExecutor(1, thread_name_prefix="fake-engine") for lane in Lane}

    def step(self, batch: Batch) -> FakeStep:
        if self._faults.strike(self._faults.raise_in_step, batch):
            raise RuntimeError("fault: raise_in_step")
        slot = self._slot(batch)
        self._hung[slot] |= self._faults.strike(self._faults.hang, batch)
        self._busy_until_s[slot] = max(self._busy_until_s[slot], self._clock()) + self._step_time.of(batch)
        step = FakeStep(self, batch, float("inf") if self._hung[slot] else self._busy_until_s[slot])
        self._forget_finished()
        self.batches.append(batch)
        self.num_unreleased += 1
        self._steps.append(step)
        if self.completion is Completion.CALLBACK and not self.by_hand and not self._hung[slot]:
            self._workers[slot].submit(self._run, step)
        return step

    def _slot(self, batch: Batch) -> Lane:
        return batch.lane if self.separate_lanes else Lane.ONLINE

    def _run(self, step: FakeStep) -> None:
        self.closed.wait(max(0.0, step.due_s - self._clock()))
        step.finish()

    @property
    def unfinished(self) -> tuple[FakeStep, ...]:
        """Steps the device still works on, oldest first."""
        self._forget_finished()
        return tuple(self._steps)

    def _forget_finished(self) -> None:
        self._steps = [step for step in self._steps if not step.ready()]

    def finish_next(self, lane: Lane | None = None) -> FakeStep:
        """End the oldest step by hand, or the oldest of `lane`. ValueError if there is none."""
        step = next((step for step in self.unfinished if lane is None or step.batch.lane is lane), None)
        if step is None:
            raise ValueError("no step is unfinished")
        step.finish()
        return step

    def is_due(self, step: FakeStep) -> bool:
        """Whether the clock alone ends this step now."""
        return self.completion is Completion.POLL and not self.by_hand and self._clock() >= step.due_s

    def compute(self, batch: Batch) -> StepResult:
        """The outputs of `batch`, or the fault that strikes it."""
        self._dead |= self._faults.strike(self._faults.die, batch)
        if self._dead:
            raise Unavailable("fault: die")
        if self._faults.strike(self._faults.raise_in_result, batch):
            raise RuntimeError("fault: raise_in_result")
        layout = OutputLayout.plan(batch, self.info.outputs)
        device_ns = round(self._step_time.of(batch) * 1e9)
        result = StepResult(layout=layout, buffer=np.zeros(layout.num_bytes, np.uint8), device_ns=device_ns)
        poisoned = self._faults.strike(self._faults.poison, batch)
        for position, sequence in enumerate(batch.sequences):
            spoiled = poisoned or self._faults.spoils(sequence)
            result.status[position] = RowStatus.NON_FINITE if spoiled else RowStatus.OK
            for kind in sequence.outputs:
                result.rows(kind, position)[:] = np.nan if spoiled else expected_rows(sequence, kind, self.info)
        return result

    def warm_up(self) -> None:
        self.warmed_up = True

    def idle(self) -> bool:
        self.idle_calls.append(time.monotonic())
        self.idle_work -= 1
        return self.idle_work >= 0

    def statistics(self) -> EngineStatistics:
        return self.figures

    def close(self) -> None:
        self.closed.set()
        for worker in self._workers.values():
            worker.shutdown()
