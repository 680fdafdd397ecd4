"""Keeps a few child processes alive, announces when they are ready, and stops them together.

Knows nothing of what the children do. Each child leads a process group of its own, so that Ctrl-C in a terminal
reaches the supervisor alone and the children stop in order.
"""

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.2
_libc = ctypes.CDLL(None)
"""Loaded before any fork: the child between fork and exec should do as little as it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCommand:
    """A process to keep alive."""

    name: str
    arguments: Sequence[str]
    environment: dict[str, str]
    cores: frozenset[int] | None = None
    """The only CPU cores it may run on."""
    group: str | None = None
    """Children of one group stand in for each other: one that keeps ending is tried again while another runs."""


@dataclass(slots=True)
class RestartBudget:
    """At most `limit` restarts within any `window_s` seconds: beyond that, restarting mends nothing."""

    limit: int = 3
    window_s: float = 60.0
    _spent: deque[float] = field(default_factory=deque[float])

    def spend(self, now_s: float) -> bool:
        """Whether one more restart is allowed at `now_s`, on a clock that never goes back."""
        if self.wait_s(now_s) > 0:
            return False
        self._spent.append(now_s)
        return True

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more is allowed; 0 if it is now."""
        while self._spent and self._spent[0] <= now_s - self.window_s:
            self._spent.popleft()
        return self._spent[0] + self.window_s - now_s if len(self._spent) >= self.limit else 0.0


class ChildFailed(Exception):
    """A child ended and is not started again."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(f"{name} ended with {_describe(exit_code)}")
        self.exit_code = exit_code if exit_code > 0 else 1


class Supervisor:
    """Runs the children of one `rosebed serve`."""

    def __init__(
        self,
        commands: Sequence[ChildCommand],
        *,
        become_ready: Callable[[], Awaitable[None]],
        grace_s: float,
    ) -> None:
        """Children start in the order of `commands` and stop in reverse, each within `grace_s` seconds; those in groups
        that follow on each other stop together.

        Until `become_ready` returns, no child is started again: what cannot start once will not the next time.
        """
        self._commands = commands
        self._become_ready = become_ready
        self._grace_s = grace_s
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._is_ready = False

    async def run(self) -> int:
        """Until SIGINT or SIGTERM (0), or until a child fails for good (its exit code, at least 1).

        Another signal while the children stop ends them at once.
        """
        stopped = asyncio.Event()

        def stop() -> None:
            if stopped.is_set():
                self._kill_all()
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        try:
            for command in self._commands:
                await self._start(command)
            return await self._first_end(stopped)
        finally:
            await self._stop_all()

    async def _first_end(self, stopped: asyncio.Event) -> int:
        stop = asyncio.create_task(stopped.wait())
        readiness = asyncio.create_task(self._note_readiness())
        kept = [asyncio.create_task(self._keep(command)) for command in self._commands]
        try:
            done, _ = await asyncio.wait([stop, *kept], return_when=asyncio.FIRST_COMPLETED)
            if stop not in done:
                await done.pop()
        except ChildFailed as failure:
            log.error("%s: giving up", failure)
            return failure.exit_code
        finally:
            for task in (stop, readiness, *kept):
                task.cancel()
        return 0

    async def _note_readiness(self) -> None:
        await self._become_ready()
        self._is_ready = True

    async def _keep(self, command: ChildCommand) -> None:
        """Start the child again whenever it ends. ChildFailed before the first readiness, or when it ends too often."""
        budget = RestartBudget()
        while True:
            exit_code = await self._processes[command.name].wait()
            _kill_group(self._processes[command.name].pid)
            if not self._is_ready:
                raise ChildFailed(command.name, exit_code)
            await self._allow_restart(command, budget, exit_code)
            await self._start(command)

    async def _allow_restart(self, command: ChildCommand, budget: RestartBudget, exit_code: int) -> None:
        """Return when it may be started again. ChildFailed when that mends nothing and no other does its work."""
        ended = f"{command.name} ended with {_describe(exit_code)}"
        if budget.spend(time.monotonic()):
            log.error("%s: starting it again", ended)
            return
        if self._has_stand_in(command):
            log.error("%s, as often before: starting it again in %.0f s", ended, budget.wait_s(time.monotonic()))
        while not budget.spend(time.monotonic()):
            if not self._has_stand_in(command):
                raise ChildFailed(command.name, exit_code)
            await asyncio.sleep(_LOOK_S)

    def _has_stand_in(self, command: ChildCommand) -> bool:
        """Whether another child of the same group runs."""
        others = (other for other in self._commands if other is not command and other.group == command.group)
        return command.group is not None and any(self._processes[other.name].returncode is None for other in others)

    async def _start(self, command: ChildCommand) -> None:
        self._processes[command.name] = await asyncio.create_subprocess_exec(
            *command.arguments,
            env=command.environment,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(_prepare, command.cores),
        )

    async def _stop_all(self) -> None:
        for in_groups, commands in groupby(reversed(self._commands), key=lambda command: command.group is not None):
            if in_groups:
                await asyncio.gather(*map(self._stop, commands))
            else:
                for command in commands:
                    await self._stop(command)

    def _kill_all(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                _kill_group(process.pid)

    async def _stop(self, command: ChildCommand) -> None:
        process = self._processes.get(command.name)
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            log.error("%s did not stop within %g s: killing it", command.name, self._grace_s)
        _kill_group(process.pid)
        await process.wait()


def _kill_group(leader: int) -> None:
    """Whatever the child started must not outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _prepare(cores: frozenset[int] | None) -> None:
    """In the child: keep to `cores`; get SIGTERM when the supervisor dies, even by SIGKILL, so that none is left."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _describe(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
