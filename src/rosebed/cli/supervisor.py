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

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
"""Loaded before any fork: the child between fork and exec should do as little as it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCommand:
    """A process to keep alive."""

    name: str
    arguments: Sequence[str]
    environment: dict[str, str]


@dataclass(slots=True)
class RestartBudget:
    """At most `limit` restarts within any `window_s` seconds: beyond that, restarting mends nothing."""

    limit: int = 3
    window_s: float = 60.0
    _spent: deque[float] = field(default_factory=deque[float])

    def spend(self, now_s: float) -> bool:
        """Whether one more restart is allowed at `now_s`, on a clock that never goes back."""
        while self._spent and self._spent[0] <= now_s - self.window_s:
            self._spent.popleft()
        if len(self._spent) >= self.limit:
            return False
        self._spent.append(now_s)
        return True


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
        """Children start in the order of `commands` and stop in reverse, each within `grace_s` seconds.

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
            if not self._is_ready or not budget.spend(time.monotonic()):
                raise ChildFailed(command.name, exit_code)
            log.error("%s ended with %s: starting it again", command.name, _describe(exit_code))
            await self._start(command)

    async def _start(self, command: ChildCommand) -> None:
        self._processes[command.name] = await asyncio.create_subprocess_exec(
            *command.arguments,
            env=command.environment,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )

    async def _stop_all(self) -> None:
        for command in reversed(self._commands):
            process = self._processes.get(command.name)
            if process is not None and process.returncode is None:
                await self._stop(command.name, process)

    def _kill_all(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                _kill_group(process.pid)

    async def _stop(self, name: str, process: asyncio.subprocess.Process) -> None:
        process.terminate()
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            log.error("%s did not stop within %g s: killing it", name, self._grace_s)
        _kill_group(process.pid)
        await process.wait()


def _kill_group(leader: int) -> None:
    """Whatever the child started must not outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _end_with_parent() -> None:
    """In the child: get SIGTERM when the supervisor dies, even by SIGKILL, so that no process is left over."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _describe(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
