"""The books: which sequences are unfinished, what permits they hold, and when a request is done.

Each admitted sequence is queued, in a step (or waiting to run again), or settled, and is settled exactly once.
"""

from rosebed.core.errors import RosebedError
from rosebed.tulip.admission import Admission
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.queue import RequestQueue
from rosebed.tulip.request import Portion, RequestState


class Ledger:
    """Moves requests towards their end; `RequestState.on_done` is called from here alone."""

    def __init__(self, queue: RequestQueue, admission: Admission, metrics: TulipMetrics) -> None:
        self._queue = queue
        self._admission = admission
        self._metrics = metrics

    def settle(self, portion: Portion, now_ns: int) -> None:
        """These sequences are finished: give their permits back, and answer the request if they were its last."""
        state = portion.state
        self._admission.release(state.lane, portion.cost)
        self._metrics.sequences += portion.num_sequences
        state.remaining -= portion.num_sequences
        state.computed_ns = now_ns
        if not state.remaining and not state.done:
            state.done = True
            self._metrics.queue_seconds.observe((state.taken_ns - state.arrived_ns) / 1e9)
            state.on_done(state)

    def fail(self, portion: Portion, error: RosebedError, now_ns: int) -> None:
        """These sequences are finished without a result."""
        if not portion.state.done:
            for index in range(portion.first, portion.stop):
                portion.state.errors[index] = error
                self._metrics.count_error(error)
        self.settle(portion, now_ns)

    def abandon(self, state: RequestState) -> None:
        """Nobody waits for `state` any more: what is queued goes at once, what is in a step when that ends."""
        state.done = True
        cost = self._queue.discard(state)
        self._admission.release(state.lane, cost)
        self._metrics.sequences += cost.sequences
        state.remaining -= cost.sequences

    def fail_request(self, state: RequestState, error: RosebedError) -> None:
        """Answer the whole request with `error` now, unless it was answered before."""
        if state.done:
            return
        state.failure = error
        self._metrics.count_error(error)
        self.abandon(state)
        state.on_done(state)
