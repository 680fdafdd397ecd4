"""Lazy results over a future, and the ring of buffers behind them. No torch."""

from concurrent.futures import Future

import numpy as np
import pytest

from rosebed.core.outputs import OutputLayout, StepResult
from rosebed.rose.lazy import Arena, ArenaRing, FutureTensor, run_inline


def a_result() -> StepResult:
    return StepResult(layout=OutputLayout(num_sequences=0, slots={}, num_bytes=0), buffer=np.empty(0, np.uint8))


def test_result_comes_with_the_future() -> None:
    future: Future[StepResult] = Future()
    lazy = FutureTensor(future, lambda: None)
    calls: list[str] = []
    lazy.add_done_callback(lambda: calls.append("early"))
    assert not lazy.ready()
    assert calls == []
    result = a_result()
    future.set_result(result)
    assert lazy.ready()
    assert lazy.result() is result
    lazy.add_done_callback(lambda: calls.append("late"))
    assert calls == ["early", "late"]


def test_release_waits_for_the_step_and_happens_once() -> None:
    future: Future[StepResult] = Future()
    released: list[int] = []
    lazy = FutureTensor(future, lambda: released.append(1))
    lazy.release()
    lazy.release()
    assert released == []
    future.set_exception(RuntimeError("no"))
    assert released == [1]
    with pytest.raises(RuntimeError, match="no"):
        lazy.result()


def test_an_arena_grows_and_is_reused() -> None:
    arena = Arena()
    first = arena.take(10)
    first[:] = 7
    assert arena.take(4).tolist() == [7, 7, 7, 7]
    assert len(arena.take(100)) == 100
    assert len(arena.take(0)) == 0


def test_the_ring_has_so_many_arenas_and_no_more() -> None:
    ring = ArenaRing(2)
    first, second = ring.acquire(), ring.acquire()
    assert first is not second
    with pytest.raises(RuntimeError, match="release one first"):
        ring.acquire()
    ring.give_back(first)
    assert ring.acquire() is first


def test_what_runs_inline_is_done_whatever_came_of_it() -> None:
    result = a_result()
    assert FutureTensor(run_inline(lambda: result), lambda: None).result() is result

    def fail() -> StepResult:
        raise ValueError("no")

    lazy = FutureTensor(run_inline(fail), lambda: None)
    assert lazy.ready()
    with pytest.raises(ValueError, match="no"):
        lazy.result()
