"""A `ClientWorker` in a process of its own, behind a pipe: one order, one answer."""

import asyncio
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from rosebed.bench.event_loop import new_event_loop
from rosebed.bench.targets.base import TargetSettings
from rosebed.bench.worker import ClientWorker
from rosebed.core.errors import RosebedError, ServerError, SetupError


@dataclass(frozen=True, slots=True)
class Order:
    """A method of `ClientWorker` to call."""

    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, in a form that survives the pipe."""

    message: str
    is_setup: bool

    def to_error(self) -> RosebedError:
        return SetupError(self.message) if self.is_setup else ServerError(self.message)


def client_process(pipe: Pipe, settings: TargetSettings, counts: Any, index: int) -> None:
    """Obey orders until the parent hangs up. `counts[index]` is how many sequences have been answered so far."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the parent too, which then hangs up

    def on_done(num_sequences: int) -> None:
        counts[index] += num_sequences

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            worker = ClientWorker(settings, on_done)
        except RosebedError as error:
            pipe.recv()
            pipe.send(_failure(error))
            return
        while (order := _next_order(pipe)) is not None:
            pipe.send(runner.run(_obey(worker, order)))
        runner.run(worker.close())


def _next_order(pipe: Pipe) -> Order | None:
    try:
        return pipe.recv()
    except EOFError:
        return None


async def _obey(worker: ClientWorker, order: Order) -> Any:
    try:
        return await getattr(worker, order.method)(*order.arguments)
    except RosebedError as error:
        return _failure(error)
    except TimeoutError:
        return Failure("the target did not answer in time", is_setup=False)


def _failure(error: RosebedError) -> Failure:
    return Failure(error.message, isinstance(error, SetupError))
