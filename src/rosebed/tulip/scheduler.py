"""The step loop: keeps the engine busy with what is queued and hands its results back. Knows no asyncio and no wire.

A step is take → `Engine.step` → result. Up to `max_in_flight` are enqueued at once, so that the host prepares batch
n + 1 while the device runs batch n. An engine with separate lanes takes as many of each: an online step then starts
beside a bulk one, and the other way round only where it is bulk's turn. Who calls `turn`, and when, is `StepLoop`'s
business.
"""

import time
from collections.abc import Callable

from rosebed.core.engine import Completion, Engine, LazyTensor
from rosebed.core.errors import DeadlineExceeded, NonFiniteOutput, RosebedError, StepFailed, Unavailable
from rosebed.core.outputs import RowStatus, StepResult
from rosebed.core.types import Batch, Lane, Sequence
from rosebed.tulip.admission import Admission
from rosebed.tulip.batcher import next_lane, take_batch
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.cost import Cost
from rosebed.tulip.failures import halves, num_sequences, one_by_one
from rosebed.tulip.in_flight import Slot, Slots, Step
from rosebed.tulip.ledger import Ledger
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.predictor import StepTimes
from rosebed.tulip.queue import RequestQueue
from rosebed.tulip.request import NEVER, Portion, Portions, RequestState

MOST_BESIDE_NS = 1_000_000_000
"""A bulk step that has run for so much longer than predicted, or for `bulk_wait_s`, gets so little of the device beside
online ones that these wait until it has ended."""


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
        self._polls = engine.completion is Completion.POLL
        self._bulk_wait_ns = int(config.bulk_wait_s * 1e9)
        self._metrics = metrics
        self._on_step = on_step
        self._on_death = on_death
        self._clock = clock
        self._slots = Slots(engine.info.max_in_flight, separate=engine.separate_lanes)
        self._death: Unavailable | None = None
        self.queue = RequestQueue()
        self.admission = Admission(Cost.of_queue(config))
        self.step_times = StepTimes()
        self._ledger = Ledger(self.queue, self.admission, metrics)

    @property
    def num_in_flight(self) -> int:
        """Steps enqueued and not yet known to be done."""
        return self._slots.num_steps

    @property
    def must_poll(self) -> bool:
        """Whether only another `turn` will notice the end of a step."""
        return self._polls and self._slots.num_steps > 0

    @property
    def idle(self) -> bool:
        """Whether there is neither work queued nor in flight."""
        return not any(slot.steps or slot.retries for slot in self._slots.all) and not any(
            self.queue.num_requests(lane) for lane in Lane
        )

    def running_steps(self) -> list[Step]:
        """The steps the engine works on now, one of each slot that has any. Safe to call from any thread."""
        return [step for slot in self._slots.all if (step := slot.oldest()) is not None]

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

    def turn(self) -> bool:
        """One pass of the step loop: take in what is done, then keep the engine busy.

        True where the engine has run a step meanwhile: who waits for its answer should get it before the next turn.
        """
        for slot in self._slots.all:
            self._harvest(slot)
        while portions := self._next_portions():
            self._start(portions)
            slot = self._slots.of(portions[0].state.lane)
            if not self._polls and slot.is_done:
                self._harvest(slot)
                return True
        return False

    def _harvest(self, slot: Slot) -> None:
        # A slot's steps end in the order they were enqueued, so only the oldest is asked.
        while (step := slot.oldest()) is not None:
            try:
                if not step.lazy.ready():
                    return
                result = step.lazy.result()
            except Exception as error:
                self._end(slot, step)
                self._recover(step.portions, error)
            else:
                self._learn(step, self._end(slot, step))
                self._deliver(step.portions, result)
            step.lazy.release()

    def _end(self, slot: Slot, step: Step) -> int:
        """The slot's oldest step is over, one way or the other; returns how long the engine worked on it, in ns."""
        now_ns = self._clock()
        elapsed_ns = slot.end(now_ns)
        if step.portions[0].state.lane is Lane.BULK:
            self.queue.end_bulk(now_ns, elapsed_ns)
        return elapsed_ns

    def _next_portions(self) -> Portions:
        """What to run now: a retry, else the next batch if it may be closed; empty for nothing."""
        for slot in self._slots.all:
            while slot.retries and slot.has_room:
                if wanted := self._wanted(slot.retries.popleft()):
                    return wanted
        now_ns = self._clock()
        while (lane := self._closable_lane(now_ns)) is not None:
            portions, expired = take_batch(self.queue, self._engine.info.limits, now_ns, lane=lane)
            for state in expired:
                self.expire(state)
            if portions:
                self.queue.take(portions, now_ns)
                return portions
        return ()

    def _closable_lane(self, now_ns: int) -> Lane | None:
        """The lane of the next batch, if that may be made now."""
        lane = next_lane(self.queue, now_ns, bulk_wait_ns=self._bulk_wait_ns)
        if lane is None or self._may_close(lane, now_ns):
            return lane
        is_beside = self._slots.separate and lane is Lane.BULK and self.queue.num_requests(Lane.ONLINE)
        return Lane.ONLINE if is_beside and self._may_close(Lane.ONLINE, now_ns) else None

    def _may_close(self, lane: Lane, now_ns: int) -> bool:
        """Whether the next batch may be made now: closing it early while a step runs would freeze a tiny one."""
        slot = self._slots.of(lane)
        if not slot.has_room:
            return False
        if lane is Lane.BULK:
            return self._may_close_bulk(slot, now_ns)
        if self._bulk_starves(now_ns):
            return False
        if not slot.steps or self.queue.backlog(lane).fills(Cost.of_limits(self._engine.info.limits)):
            return True
        return self._is_soon(slot.remaining_ns(now_ns))

    def _may_close_bulk(self, slot: Slot, now_ns: int) -> bool:
        """The same for the bulk lane, not early even when it is full: online work may arrive and go first."""
        if self._slots.separate and self.queue.num_requests(Lane.ONLINE):
            return not slot.steps  # its turn is due: it takes what online steps leave it
        return not self._slots.num_steps or self._is_soon(self._slots.remaining_ns(now_ns))

    def _is_soon(self, remaining_ns: float) -> bool:
        # NOTE: between callbacks nobody looks at the clock, so that there the running step's end closes the batch.
        return self._polls and remaining_ns <= self.step_times.lead_ns

    def _bulk_starves(self, now_ns: int) -> bool:
        """Whether online steps have kept a bulk one from its share of the device for too long."""
        if not self._slots.separate:
            return False
        return self._slots.of(Lane.BULK).overdue_ns(now_ns) > min(self._bulk_wait_ns, MOST_BESIDE_NS)

    def _start(self, portions: Portions) -> None:
        sequences = (sequence for portion in portions for sequence in portion.sequences)
        lane = portions[0].state.lane
        batch = Batch.pack(sequences, lane=lane)
        started_ns = self._clock()
        try:
            lazy = self._engine.step(batch)
        except Exception as error:
            self._recover(portions, error)
            return
        self.step_times.observe_enqueue(self._clock() - started_ns)
        predicted_ns = self.step_times.predict_ns(batch.num_tokens)
        self._slots.append(
            lane,
            Step(
                portions=portions,
                lazy=lazy,
                num_tokens=batch.num_tokens,
                predicted_ns=predicted_ns,
                started_ns=started_ns,
            ),
        )
        self._metrics.batch_tokens.observe(batch.num_tokens)
        self._metrics.batch_sequences.observe(batch.num_sequences)
        if self._polls or not lazy.ready():
            self._on_step(lazy)

    def _learn(self, step: Step, elapsed_ns: int) -> None:
        known_ns = self.step_times.predict_ns(step.num_tokens)
        if not step.overlapped or not known_ns or elapsed_ns < known_ns:
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
                self._slots.of(portion.state.lane).retries.append((portion,))
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
            retries = self._slots.of(portions[0].state.lane).retries
            retries.extendleft(reversed(halves(portions)))
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
        for slot in self._slots.all:
            while slot.retries:
                self._give_up(slot.retries.popleft(), error)
        for state in [state for lane in Lane for state in self.queue.requests(lane)]:
            self._ledger.fail_request(state, error)

    def _give_up(self, portions: Portions, error: RosebedError) -> None:
        now_ns = self._clock()
        for portion in portions:
            self._ledger.fail_request(portion.state, error)
            self._ledger.settle(portion, now_ns)
