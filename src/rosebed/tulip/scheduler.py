"""The step loop: keeps the engine busy with what is queued and hands its results back. Knows no asyncio and no wire.

A step is take → `Engine.step` → result. Up to `max_in_flight` are enqueued at once, so that the host prepares batch
n + 1 while the device runs batch n. Who calls `turn`, and when, is `StepLoop`'s business.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rosebed.core.engine import Completion, Engine, LazyTensor
from rosebed.core.errors import DeadlineExceeded, NonFiniteOutput, RosebedError, StepFailed, Unavailable
from rosebed.core.outputs import RowStatus, StepResult
from rosebed.core.types import Batch, Lane, Sequence
from rosebed.tulip.admission import Admission
from rosebed.tulip.batcher import next_lane, take_batch
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.cost import Cost
from rosebed.tulip.failures import halves, num_sequences, one_by_one
from rosebed.tulip.ledger import Ledger
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.predictor import StepTimes
from rosebed.tulip.queue import RequestQueue
from rosebed.tulip.request import NEVER, Portion, Portions, RequestState


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """A batch that the engine works on."""

    portions: Portions
    lazy: LazyTensor
    num_tokens: int
    predicted_ns: float
    started_ns: int
    """When it was enqueued, or the step before it ended: since then the device has worked on this one."""


class Scheduler:
    """Queue, admission and the steps in flight of one engine. Everything runs on one thread."""

    def __init__(
        self,
        engine: Engine,
        config: TulipConfig,
        *,
        metrics: TulipMetrics,
        on_step: Callable[[LazyTensor], None],
        on_death: Callable[[str], None],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`on_step` is told of each step enqueued, `on_death` once that the engine can compute no more."""
        self._engine = engine
        self._specs = engine.info.outputs
        self._max_in_flight = engine.info.max_in_flight
        self._polls = engine.completion is Completion.POLL
        self._bulk_wait_ns = int(config.bulk_wait_s * 1e9)
        self._metrics = metrics
        self._on_step = on_step
        self._on_death = on_death
        self._clock = clock
        self._retries: deque[Portions] = deque()
        self._in_flight: deque[Step] = deque()
        self._death: Unavailable | None = None
        self.queue = RequestQueue()
        self.admission = Admission(Cost.of_queue(config))
        self.step_times = StepTimes()
        self._ledger = Ledger(self.queue, self.admission, metrics)

    @property
    def num_in_flight(self) -> int:
        """Steps enqueued and not yet known to be done."""
        return len(self._in_flight)

    @property
    def must_poll(self) -> bool:
        """Whether only another `turn` will notice the end of a step."""
        return self._polls and bool(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether there is neither work queued nor in flight."""
        return not self._in_flight and not self._retries and not any(self.queue.num_requests(lane) for lane in Lane)

    def oldest_step(self) -> Step | None:
        """The step the engine works on now. Safe to call from any thread."""
        try:
            return self._in_flight[0]
        except IndexError:
            return None

    def submit(
        self,
        sequences: tuple[Sequence, ...],
        *,
        on_done: Callable[[RequestState], None],
        lane: Lane = Lane.ONLINE,
        timeout_ns: int = 0,
    ) -> RequestState:
        """Queue one request for the next `turn`. Overloaded, PayloadTooLarge or Unavailable if it is not taken."""
        if self._death is not None:
            raise self._death
        now_ns = self._clock()
        deadline_ns = now_ns + timeout_ns if timeout_ns else NEVER
        state = RequestState(
            sequences, self._specs, lane=lane, arrived_ns=now_ns, deadline_ns=deadline_ns, on_done=on_done
        )
        self.admission.acquire(lane, state.total_cost, tokens_per_s=self.step_times.tokens_per_s)
        state.allocate(self._specs)
        self.queue.append(state)
        self._metrics.requests += 1
        return state

    def abandon(self, state: RequestState) -> None:
        """The caller of `state` is gone: it will not be answered."""
        self._ledger.abandon(state)

    def expire(self, state: RequestState) -> None:
        """The deadline of `state` is over: it is answered now, if it was not before."""
        self._ledger.fail_request(state, DeadlineExceeded("the deadline passed before the request was done"))

    def turn(self) -> None:
        """One pass of the step loop: take in what is done, then keep the engine busy."""
        self._harvest()
        while len(self._in_flight) < self._max_in_flight:
            portions = self._next_portions()
            if not portions:
                return
            self._start(portions)

    def _harvest(self) -> None:
        # Steps end in the order they were enqueued, so only the oldest is asked.
        while self._in_flight:
            step = self._in_flight[0]
            try:
                if not step.lazy.ready():
                    return
                result = step.lazy.result()
            except Exception as error:
                self._end(step)
                self._recover(step.portions, error)
            else:
                self._learn(step, self._end(step))
                self._deliver(step.portions, result)
            step.lazy.release()

    def _next_portions(self) -> Portions:
        """What to run now: a retry, else the next batch if it may be closed; empty for nothing."""
        while self._retries:
            if wanted := self._wanted(self._retries.popleft()):
                return wanted
        now_ns = self._clock()
        while (lane := next_lane(self.queue, now_ns, bulk_wait_ns=self._bulk_wait_ns)) is not None:
            if not self._may_close(lane, now_ns):
                break
            portions, expired = take_batch(self.queue, self._engine.info.limits, now_ns, lane=lane)
            for state in expired:
                self.expire(state)
            if portions:
                self.queue.take(portions, now_ns)
                return portions
        return ()

    def _may_close(self, lane: Lane, now_ns: int) -> bool:
        """Whether the next batch may be made now: closing it early while a step runs would freeze a tiny one.

        A bulk batch is not closed early even when it is full: online work may arrive and go first.
        """
        if not self._in_flight:
            return True
        if lane is Lane.ONLINE and self.queue.backlog(lane).fills(Cost.of_limits(self._engine.info.limits)):
            return True
        # NOTE: between callbacks nobody looks at the clock, so that there the running step's end closes the batch.
        if not self._polls:
            return False
        remaining_ns = sum(step.predicted_ns for step in self._in_flight) - (now_ns - self._in_flight[0].started_ns)
        return remaining_ns <= self.step_times.lead_ns

    def _start(self, portions: Portions) -> None:
        sequences = (sequence for portion in portions for sequence in portion.sequences)
        batch = Batch.pack(sequences, lane=portions[0].state.lane)
        started_ns = self._clock()
        try:
            lazy = self._engine.step(batch)
        except Exception as error:
            self._recover(portions, error)
            return
        self.step_times.observe_enqueue(self._clock() - started_ns)
        predicted_ns = self.step_times.predict_ns(batch.num_tokens)
        self._in_flight.append(
            Step(
                portions=portions,
                lazy=lazy,
                num_tokens=batch.num_tokens,
                predicted_ns=predicted_ns,
                started_ns=started_ns,
            )
        )
        self._metrics.batch_tokens.observe(batch.num_tokens)
        self._metrics.batch_sequences.observe(batch.num_sequences)
        self._on_step(lazy)

    def _end(self, step: Step) -> int:
        """The oldest step is over, one way or the other; returns how long the engine worked on it, in ns."""
        now_ns = self._clock()
        self._in_flight.popleft()
        if self._in_flight:
            self._in_flight[0].started_ns = now_ns
        return now_ns - step.started_ns

    def _learn(self, step: Step, elapsed_ns: int) -> None:
        self.step_times.observe(step.num_tokens, elapsed_ns)
        self._metrics.step_seconds.observe(elapsed_ns / 1e9)
        self._metrics.tokens += step.num_tokens

    def _deliver(self, portions: Portions, result: StepResult) -> None:
        """Copy each request's rows out of the step's buffer, and settle all but those with rows that are not finite."""
        at = 0
        for portion in portions:
            if not portion.state.done:
                portion.state.store(result, portion, at)
            at += portion.num_sequences
        now_ns = self._clock()
        if result.status.tobytes() != bytes(len(result.status)):
            portions = self._without_non_finite(portions, result, now_ns)
        for portion in portions:
            self._ledger.settle(portion, now_ns)

    def _without_non_finite(self, portions: Portions, result: StepResult, now_ns: int) -> Portions:
        """The finite sequences of `portions`, one by one; the others run again alone, or fail if they already did."""
        finite: list[Portion] = []
        for portion, status in zip(one_by_one(portions), result.status.tolist(), strict=True):
            if status == RowStatus.OK:
                finite.append(portion)
            elif len(result.status) > 1:
                self._retries.append((portion,))
            else:
                error = NonFiniteOutput("the model made NaN or infinity of this input, also when it ran alone")
                self._ledger.fail(portion, error, now_ns)
        return tuple(finite)

    def _recover(self, portions: Portions, error: Exception) -> None:
        """The engine raised for these: find out for which, or give up if it is gone for good."""
        if isinstance(error, Unavailable):
            self._give_up(portions, error)
            self._die(error)
        elif num_sequences(portions) > 1:
            self._retries.extendleft(reversed(halves(portions)))
        else:
            reason = f"the forward pass raised {type(error).__name__}: {error}"
            self._ledger.fail(portions[0], StepFailed(reason), self._clock())

    def _wanted(self, portions: Portions) -> Portions:
        """Those of `portions` somebody still waits for; the others are settled."""
        now_ns = self._clock()
        for portion in portions:
            if portion.state.deadline_ns <= now_ns:
                self.expire(portion.state)
            if portion.state.done:
                self._ledger.settle(portion, now_ns)
        return tuple(portion for portion in portions if not portion.state.done)

    def _die(self, error: Unavailable) -> None:
        """The engine can compute no more: nothing that waits will be run."""
        if self._death is None:
            self._death = error
            self._on_death(error.message)
        while self._retries:
            self._give_up(self._retries.popleft(), error)
        for state in [state for lane in Lane for state in self.queue.requests(lane)]:
            self._ledger.fail_request(state, error)

    def _give_up(self, portions: Portions, error: RosebedError) -> None:
        now_ns = self._clock()
        for portion in portions:
            self._ledger.fail_request(portion.state, error)
            self._ledger.settle(portion, now_ns)
