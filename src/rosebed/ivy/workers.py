"""Keeps the gateway's worker processes: starts them, starts others for those that die, stops them together."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress

import msgspec

from rosebed.core.counting import counted
from rosebed.ivy.worker import ORDER_LENGTH, UP, Order

STOP_GRACE_S = 10.0
"""Workers still busy this long after a stop are killed."""
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 10.0
STEADY_S = 10.0
"""A worker that lived this long did not die of how it was started."""

_log = logging.getLogger(__name__)


class WorkerFailed(Exception):
    """A worker ended, before any had ever served."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a worker ended with {_describe(exit_code)} before it served")
        self.exit_code = exit_code if exit_code > 0 else 1


class Workers:
    """The workers of one server, all told the same."""

    def __init__(self, order: Order, number: int) -> None:
        self._order = order
        self._number = number
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._have_served = False

    async def run(self) -> None:
        """Until SIGTERM or SIGINT; once more, and what is in flight is dropped. WorkerFailed if none can start."""
        stopped = asyncio.Event()

        def stop() -> None:
            if stopped.is_set():
                self._kill()
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        stop_asked = asyncio.create_task(stopped.wait())
        kept = [asyncio.create_task(self._keep(place)) for place in range(self._number)]
        try:
            done, _ = await asyncio.wait([stop_asked, *kept], return_when=asyncio.FIRST_COMPLETED)
            if stop_asked not in done:
                await done.pop()
        finally:
            for task in (stop_asked, *kept):
                task.cancel()
            await asyncio.wait([stop_asked, *kept])
            await self._stop()

    async def _keep(self, place: int) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            started_s = time.monotonic()
            exit_code = await self._run_one(place)
            if not self._have_served:
                raise WorkerFailed(exit_code)
            lived_s = time.monotonic() - started_s
            if lived_s >= STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            _log.error(
                "a worker ended with %s after %.1f s: another starts in %g s", _describe(exit_code), lived_s, backoff_s
            )
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)

    async def _run_one(self, place: int) -> int:
        """Start a worker and wait for its end; its exit code."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = await self._start(theirs)
            self._running[place] = process
            with suppress(ConnectionError):
                ours.setblocking(False)
                loop = asyncio.get_running_loop()
                order = msgspec.msgpack.encode(self._order)
                await loop.sock_sendall(ours, ORDER_LENGTH.pack(len(order)) + order)
                if await loop.sock_recv(ours, len(UP)) == UP:
                    self._have_served = True
            exit_code = await process.wait()
        del self._running[place]
        return exit_code

    async def _start(self, order: socket.socket) -> asyncio.subprocess.Process:
        listener = self._order.listener
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "rosebed.ivy.worker"),
            stdin=order.fileno(),
            pass_fds=() if listener is None else (listener,),
            # Where this process finds its modules, its workers do.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def _kill(self) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.kill()

    async def _stop(self) -> None:
        """Let each finish what is in flight, within STOP_GRACE_S."""
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()
        ends = [asyncio.create_task(process.wait()) for process in self._running.values()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=STOP_GRACE_S)
            if late:
                _log.error("%s did not stop within %g s: sending SIGKILL", counted(len(late), "worker"), STOP_GRACE_S)
                self._kill()
                await asyncio.wait(late)


def _describe(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
