"""The client processes of a run, seen from their parent: starts them, lets them measure at once, merges exactly."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, Self

from rosebed.bench.case import Case
from rosebed.bench.client_process import Failure, Order, client_process
from rosebed.bench.config import MAX_PROCESSES
from rosebed.bench.null_server import NullServer
from rosebed.bench.samples import Recording
from rosebed.bench.statistics import Summary
from rosebed.bench.targets.base import Canned, TargetInfo, TargetSettings
from rosebed.bench.worker import Prepared
from rosebed.core.errors import ServerError

START_DELAY_NS = 50_000_000
"""Between the order to measure and the start, so that every process has it in time."""
STOP_S = 5.0
PROGRESS_S = 0.2
"""How often a watcher is told of progress."""

OnProgress = Callable[[int], None]
"""Is told how many sequences have been answered since the case began, its warm-up included."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaseRun:
    """What came of one case."""

    case: Case
    recording: Recording
    null: Summary | None
    """Latencies that the client measures where the server does nothing; None if there is no time to tell."""
    divergence: float
    """Largest cosine distance between two answers to the same request."""
    prepared: Prepared
    """What the first client process found."""


class Crew:
    """Client processes that hold the same target. Started as they are needed; they end with the context."""

    def __init__(self, settings: TargetSettings, *, on_progress: OnProgress) -> None:
        self._settings = settings
        self._on_progress = on_progress
        self._context = multiprocessing.get_context("spawn")
        self._counts = self._context.RawArray("q", MAX_PROCESSES)
        self._members: list[_Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for member in self._members:
            member.pipe.close()
        for member in self._members:
            member.process.join(STOP_S)
            if member.process.exitcode is None:
                member.process.kill()
                member.process.join()

    def describe(self) -> TargetInfo:
        """What the target is, as the first process finds it."""
        return self._grow(1)[0]

    def _grow(self, num_processes: int) -> list[TargetInfo]:
        """Start processes until there are so many; what those that were added say of the target."""
        added = range(len(self._members), num_processes)
        self._members += [self._start(index) for index in added]
        return self._ask(self._members[added.start :], [Order("describe")] * len(added))

    def _start(self, index: int) -> "_Member":
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._settings, self._counts, index)
        process = self._context.Process(target=client_process, args=arguments, daemon=True)
        process.start()
        theirs.close()  # so that the pipe ends when the process does
        return _Member(process, ours)

    def run(self, case: Case, vocab_size: int | None) -> CaseRun:
        """Measure one case: all its processes prepare, then all start at one time. Raises the first that fails."""
        self._counts[:] = [0] * len(self._counts)
        self._grow(case.processes)
        members = self._members[: case.processes]
        orders = [Order("prepare", (case, process, vocab_size)) for process in range(case.processes)]
        prepared: list[Prepared] = self._ask(members, orders)
        start_ns = time.monotonic_ns() + START_DELAY_NS
        recordings: list[Recording] = self._ask(members, [Order("measure", (start_ns,))] * case.processes)
        return CaseRun(
            case=case,
            recording=Recording.merged(recordings),
            null=self._calibrate(prepared[0].canned),
            divergence=max(one.divergence for one in prepared),
            prepared=prepared[0],
        )

    def _calibrate(self, canned: Canned | None) -> Summary | None:
        with NullServer(canned) if canned is not None else nullcontext() as server:
            return self._ask(self._members[:1], [Order("calibrate", (server and server.address,))])[0]

    def _ask(self, members: "Sequence[_Member]", orders: Sequence[Order]) -> list[Any]:
        """Give each member its order at once; their answers. Raises the first failure."""
        for member, order in zip(members, orders, strict=True):
            member.pipe.send(order)
        waiting = [member.pipe for member in members]
        while waiting:
            ready = wait(waiting, PROGRESS_S)
            waiting = [pipe for pipe in waiting if pipe not in ready]
            self._on_progress(sum(self._counts))
        answers = [member.receive() for member in members]
        for answer in answers:
            if isinstance(answer, Failure):
                raise answer.to_error()
        return answers


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """One client process and the pipe to it."""

    process: SpawnProcess
    pipe: "Pipe[Order, Any]"

    def receive(self) -> Any:
        try:
            return self.pipe.recv()
        except EOFError:
            raise ServerError("a client process ended before it had answered") from None
