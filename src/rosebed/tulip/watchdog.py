"""Notices that steps, or the event loop itself, make no progress: from a thread, since a stuck loop cannot."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from enum import Enum

from rosebed.tulip.config import TulipConfig
from rosebed.tulip.scheduler import Scheduler

PERIOD_S = 0.25
"""Between two looks, and between two heartbeats."""
FROZEN_NS = 2_000_000_000
"""Who sleeps so much longer than `PERIOD_S` was stopped, with the whole process: that time does not count."""
EXIT_CODE = 70
"""Of a process that cannot serve any more (EX_SOFTWARE)."""

_LOG = logging.getLogger(__name__)


class Verdict(Enum):
    """How the server is doing."""

    WELL = "well"
    STALLED = "stalled"
    """The running step is overdue: not ready, until it ends."""
    LOST = "lost"
    """No progress for so long that only a new process will help."""


def judge(step_age_s: float, predicted_s: float, heartbeat_age_s: float, config: TulipConfig) -> Verdict:
    """`step_age_s` is how long the engine has worked on its oldest step, 0 with none in flight.

    A long sequence on a CPU rightly takes minutes, so what is fatal follows the prediction, as what is overdue does.
    `predicted_s` is 0 for the very first step: that may take as long as a lost one.
    """
    fatal_step_s = config.stall_factor * (predicted_s or config.fatal_s) + config.fatal_s
    if heartbeat_age_s >= config.fatal_s or step_age_s >= fatal_step_s:
        return Verdict.LOST
    if step_age_s >= config.stall_factor * predicted_s + config.stall_floor_s:
        return Verdict.STALLED
    return Verdict.WELL


def exit_process(reason: str) -> None:
    """End the process at once and with an error, so that whoever supervises it starts a new one."""
    _LOG.critical("ending the process: %s", reason)
    os._exit(EXIT_CODE)


class Watchdog:
    """Watches one scheduler and the event loop it was made on."""

    def __init__(
        self,
        scheduler: Scheduler,
        config: TulipConfig,
        *,
        on_stall: Callable[[bool], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        """`on_stall` is called on the loop with each change; `on_fatal` from the watching thread, once."""
        self._scheduler = scheduler
        self._config = config
        self._on_stall = on_stall
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._beaten_ns = self._awake_ns = time.monotonic_ns()
        self._beat_handle = self._loop.call_soon(self._beat)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tulip-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch. From the loop."""
        self._stopped.set()
        self._beat_handle.cancel()
        self._thread.join()

    def _beat(self) -> None:
        self._beaten_ns = time.monotonic_ns()
        self._beat_handle = self._loop.call_later(PERIOD_S, self._beat)

    def _watch(self) -> None:
        stalled = False
        now_ns = time.monotonic_ns()
        while not self._stopped.wait(PERIOD_S):
            before_ns, now_ns = now_ns, time.monotonic_ns()
            if now_ns - before_ns > FROZEN_NS:
                self._awake_ns = now_ns
            # All ages are of `now_ns`: a freeze from here on shows in the next look.
            heartbeat_age_s = self._age_s(self._beaten_ns, now_ns)
            steps = self._look(now_ns)
            verdicts = {judge(age_s, predicted_s, heartbeat_age_s, self._config) for age_s, predicted_s in steps}
            if Verdict.LOST in verdicts:
                oldest_s = max(age_s for age_s, _ in steps)
                self._on_fatal(f"no progress for {max(oldest_s, heartbeat_age_s):.0f} s")
                return
            if stalled != (Verdict.STALLED in verdicts):
                stalled = not stalled
                self._loop.call_soon_threadsafe(self._on_stall, stalled)

    def _look(self, now_ns: int) -> list[tuple[float, float]]:
        """Age and predicted time of each running step in seconds; zeros if there is none."""
        steps = self._scheduler.running_steps()
        return [(self._age_s(step.started_ns, now_ns), step.predicted_ns / 1e9) for step in steps] or [(0.0, 0.0)]

    def _age_s(self, since_ns: int, now_ns: int) -> float:
        """Seconds since then, as far as the process ran."""
        return (now_ns - max(since_ns, self._awake_ns)) / 1e9
