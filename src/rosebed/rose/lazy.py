"""A step's result in the making on another thread, and the buffers it may be written to."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from rosebed.core.outputs import StepResult

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
ByteArray = npt.NDArray[np.uint8]


class Arena:
    """Bytes that one step in flight writes its outputs to; grows to the largest step seen."""

    def __init__(self) -> None:
        self._bytes: ByteArray = np.empty(0, np.uint8)

    def take(self, num_bytes: int) -> ByteArray:
        """uint8[num_bytes], over whatever an earlier step left there."""
        if len(self._bytes) < num_bytes:
            self._bytes = np.empty(num_bytes, np.uint8)
        return self._bytes[:num_bytes]


class ArenaRing:
    """One arena per step that may be in flight. Used from the thread that steps and those that release."""

    def __init__(self, size: int) -> None:
        self._free = deque(Arena() for _ in range(size))

    def acquire(self) -> Arena:
        """RuntimeError if every arena is in use: the caller has stepped ahead without releasing."""
        try:
            return self._free.popleft()
        except IndexError:
            raise RuntimeError("step() with all results unreleased: release one first") from None

    def give_back(self, arena: Arena) -> None:
        self._free.append(arena)


def run_inline(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> "Future[Result]":
    """What an executor's `submit` returns, done already: `function` has run here and now."""
    future: Future[Result] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


class FutureTensor:
    """`LazyTensor` over a future of the thread that computes."""

    def __init__(self, future: "Future[StepResult]", release: Callable[[], None]) -> None:
        self._future = future
        self._release: Callable[[], None] | None = release

    def ready(self) -> bool:
        return self._future.done()

    def result(self) -> StepResult:
        return self._future.result()

    def release(self) -> None:
        """Safe before the step has ended, too: the buffer goes back when it has."""
        release, self._release = self._release, None
        if release is not None:
            self._future.add_done_callback(lambda _: release())

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        self._future.add_done_callback(lambda _: callback())
