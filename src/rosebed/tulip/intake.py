"""From an `EmbedRequest` to a queued request, for unary calls and streams alike: checks, deadline, cancellation."""

import asyncio
from collections.abc import Callable

from rosebed.core.engine import Engine
from rosebed.core.errors import InvalidInput, RosebedError
from rosebed.proto.codec import lane_of, sequences_of
from rosebed.proto.rosebed_pb2 import EmbedRequest
from rosebed.tulip.admission import too_much
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.readiness import Gate
from rosebed.tulip.request import RequestState
from rosebed.tulip.step_loop import StepLoop


class Ticket:
    """A caller's hold on one request in the scheduler."""

    def __init__(self, step_loop: StepLoop, on_done: Callable[[RequestState], None]) -> None:
        self._scheduler = step_loop.scheduler
        self._on_done = on_done
        self._timer: asyncio.TimerHandle | None = None
        self._state: RequestState | None = None

    def hold(self, state: RequestState, timeout_ns: int) -> None:
        """Keep `state`, and see to it that it is answered when `timeout_ns` (0 for no limit) is over."""
        self._state = state
        if timeout_ns:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout_ns / 1e9, self._scheduler.expire, state)

    def finish(self, state: RequestState) -> None:
        """The request is done."""
        self._stop_timer()
        self._on_done(state)

    def cancel(self) -> None:
        """Nobody waits for the answer any more; does nothing if it was given."""
        self._stop_timer()
        if self._state is not None:
            self._scheduler.abandon(self._state)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Intake:
    """Where requests enter."""

    def __init__(
        self, engine: Engine, config: TulipConfig, *, step_loop: StepLoop, gate: Gate, metrics: TulipMetrics
    ) -> None:
        self._engine = engine
        self._config = config
        self._step_loop = step_loop
        self._gate = gate
        self._metrics = metrics

    def submit(
        self, message: EmbedRequest, on_done: Callable[[RequestState], None], *, time_remaining_s: float | None = None
    ) -> Ticket:
        """Check and queue a request; a RosebedError says why it is refused.

        `time_remaining_s` is what is left of gRPC's own deadline, which counts as much as the message's.
        """
        try:
            return self._submit(message, on_done, time_remaining_s)
        except RosebedError as error:
            self._metrics.count_error(error)
            raise

    def _submit(
        self, message: EmbedRequest, on_done: Callable[[RequestState], None], time_remaining_s: float | None
    ) -> Ticket:
        self._gate.require_open()
        self._check_size(message)
        # Not kept: warming up decides the batch limits.
        sequences = sequences_of(message, self._engine.info)
        timeout_ns = _tighter(message.timeout_ns, time_remaining_s)
        ticket = Ticket(self._step_loop, on_done)
        state = self._step_loop.scheduler.submit(
            sequences, on_done=ticket.finish, lane=lane_of(message), timeout_ns=timeout_ns
        )
        ticket.hold(state, timeout_ns)
        self._step_loop.wake()
        return ticket

    def _check_size(self, message: EmbedRequest) -> None:
        """Refuse what could not be queued before it is unpacked, which takes time in proportion."""
        num_sequences = len(message.lengths) // 4
        if num_sequences > self._config.max_request_sequences:
            raise InvalidInput(
                f"the request holds {num_sequences} sequences, at most {self._config.max_request_sequences} are taken",
                param="lengths",
            )
        _check_amount(len(message.token_ids) // 4, "tokens", self._config.max_queued_tokens)
        _check_amount(len(message.span_offsets) // 8, "spans", self._config.max_queued_spans)


def _tighter(timeout_ns: int, time_remaining_s: float | None) -> int:
    """The shorter of both limits in ns; 0 for none."""
    if time_remaining_s is None:
        return timeout_ns
    remaining_ns = max(1, int(time_remaining_s * 1e9))
    return min(timeout_ns, remaining_ns) if timeout_ns else remaining_ns


def _check_amount(amount: int, quantity: str, most: int) -> None:
    if amount > most:
        raise too_much(amount, quantity, most)
