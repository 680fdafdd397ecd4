"""Calls `Scheduler.turn` on the event loop, when there is something to do and at no other time.

POLL engines: the loop re-arms itself while a step is in flight, and for a moment after, and never sleeps then. CALLBACK
engines: the end of a step wakes it from the engine's thread. There is no task, and one timer: it lets the engine use
the time in which there is nothing to do.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from rosebed.core.engine import Completion, Engine, LazyTensor
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.scheduler import Scheduler

_LOG = logging.getLogger(__name__)

LINGER_NS = 5_000_000
"""A polled loop stays awake so long after a step: who asks one thing after another asks again by then. A thread that
sleeps takes 50 µs to wake, and finds its caches cold."""

IDLE_S = 0.5
"""Nothing must have happened for so long before the engine may use the time: whoever asks at shorter intervals never
waits for it."""


class StepLoop:
    """A scheduler and what drives it. Belongs to the running event loop."""

    def __init__(
        self, engine: Engine, config: TulipConfig, *, metrics: TulipMetrics, on_fatal: Callable[[str], None]
    ) -> None:
        """`on_fatal` is told why no further step can be run."""
        self._loop = asyncio.get_running_loop()
        self._on_fatal = on_fatal
        self._engine = engine
        self._armed = False
        self._awake_until_ns = 0
        self._turned_ns = 0
        self._may_idle = True
        self._idle_timer: asyncio.TimerHandle | None = None
        calls_back = engine.completion is Completion.CALLBACK
        self.scheduler = Scheduler(
            engine,
            config,
            metrics=metrics,
            on_step=self._await_callback if calls_back else _await_nothing,
            on_death=on_fatal,
        )

    def wake(self) -> None:
        """Run a turn in the next iteration of the event loop: whatever arrives in this one shares its batch."""
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """The engine gets no more time of its own."""
        self._may_idle = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _turn(self) -> None:
        self._armed = False
        try:
            has_run = self.scheduler.turn()
        except Exception as error:
            # The scheduler's books may be wrong now, so nothing it would do later can be trusted.
            _LOG.exception("the step loop failed")
            self._on_fatal(f"the step loop raised {type(error).__name__}: {error}")
            return
        now_ns = time.monotonic_ns()
        if self.scheduler.must_poll:
            self._awake_until_ns = now_ns + LINGER_NS
        if has_run or now_ns < self._awake_until_ns:
            self.wake()
        self._turned_ns = now_ns
        if self._idle_timer is None and self._may_idle:
            self._idle_timer = self._loop.call_later(IDLE_S, self._use_idle_time)

    def _use_idle_time(self) -> None:
        self._idle_timer = None
        if self._armed or not self.scheduler.idle:
            return  # a turn will come, and set the timer again
        wait_s = IDLE_S - (time.monotonic_ns() - self._turned_ns) / 1e9
        if wait_s <= 0:
            try:
                if not self._engine.idle():
                    return  # until there have been more steps
            except Exception:
                _LOG.exception("the engine failed while idle; it gets no more time of its own")
                self._may_idle = False
                return
            wait_s = IDLE_S
        self._idle_timer = self._loop.call_later(wait_s, self._use_idle_time)

    def _await_callback(self, lazy: LazyTensor) -> None:
        lazy.add_done_callback(self._wake_from_engine)

    def _wake_from_engine(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            _LOG.debug("a step ended after the event loop was closed")


def _await_nothing(_lazy: LazyTensor) -> None:
    """A POLL engine's steps are asked, they do not tell."""
