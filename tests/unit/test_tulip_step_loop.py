"""When turns are run: as often as needed, and never otherwise."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from rosebed.core.engine import Completion
from rosebed.core.types import Batch
from rosebed.testing import FakeEngine, StepTime, fake_sequence
from rosebed.testing.engine import FakeStep
from rosebed.tulip import step_loop
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.metrics import TulipMetrics
from rosebed.tulip.request import RequestState
from rosebed.tulip.step_loop import LINGER_NS, StepLoop


class Counted:
    """A step loop whose turns are counted."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.reasons: list[str] = []
        self.turns = 0
        self.loop = StepLoop(engine, TulipConfig(), metrics=TulipMetrics(), on_fatal=self.reasons.append)
        self._turn = self.loop.scheduler.turn
        self.loop.scheduler.turn = self._count

    def _count(self) -> bool:
        self.turns += 1
        return self._turn()

    async def run(self, *token_ids: int) -> RequestState:
        """One request, all the way."""
        done: asyncio.Future[RequestState] = asyncio.get_running_loop().create_future()
        self.loop.scheduler.submit((fake_sequence(token_ids),), on_done=done.set_result)
        self.loop.wake()
        return await asyncio.wait_for(done, 5)


async def test_polling_stops_when_nothing_is_in_flight() -> None:
    counted = Counted(FakeEngine(completion=Completion.POLL, step_time=StepTime(base_s=0.01)))
    await counted.run(1)
    await asyncio.sleep(4 * LINGER_NS / 1e9)
    polled = counted.turns
    assert polled > 10
    await asyncio.sleep(0.02)
    assert counted.turns == polled


async def test_callbacks_cost_one_turn_to_start_and_one_to_finish() -> None:
    counted = Counted(FakeEngine(completion=Completion.CALLBACK, step_time=StepTime(base_s=0.01)))
    await counted.run(1)
    assert counted.turns == 2
    await asyncio.sleep(0.02)
    assert counted.turns == 2
    counted.engine.close()


async def test_a_step_that_ran_at_once_costs_one_turn_and_a_look_at_what_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(FakeEngine(completion=Completion.CALLBACK, by_hand=True))
    step = counted.engine.step

    def run(batch: Batch) -> FakeStep:
        lazy = step(batch)
        lazy.finish()
        return lazy

    monkeypatch.setattr(counted.engine, "step", run)
    await counted.run(1)
    await asyncio.sleep(0.02)
    assert counted.turns == 2
    counted.engine.close()


@pytest.mark.parametrize("completion", list(Completion))
async def test_what_arrives_in_one_iteration_shares_a_batch(completion: Completion) -> None:
    counted = Counted(FakeEngine(completion=completion))
    await asyncio.gather(*(counted.run(n) for n in range(1, 6)))
    assert [batch.num_sequences for batch in counted.engine.batches] == [5]
    counted.engine.close()


@pytest.mark.parametrize("completion", list(Completion))
async def test_an_idle_engine_gets_time_of_its_own_piece_by_piece(
    completion: Completion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_loop, "IDLE_S", 0.05)
    engine = FakeEngine(completion=completion)
    engine.idle_work = 2
    counted = Counted(engine)
    started = time.monotonic()
    await counted.run(1)
    await _eventually(lambda: len(engine.idle_calls) == 3)
    for before, at in pairwise([started, *engine.idle_calls]):
        assert at - before >= 0.045
    await asyncio.sleep(0.15)  # two pieces and one call to learn that there is no more, until there have been steps
    assert len(engine.idle_calls) == 3
    await counted.run(2)
    await _eventually(lambda: len(engine.idle_calls) == 4)
    counted.loop.close()
    await counted.run(3)
    await asyncio.sleep(0.1)
    assert len(engine.idle_calls) == 4
    engine.close()


async def _eventually(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_an_engine_that_works_or_has_just_worked_gets_none() -> None:
    engine = FakeEngine(by_hand=True)
    engine.idle_work = 100
    counted = Counted(engine)
    running = asyncio.ensure_future(counted.run(1))
    await _eventually(lambda: bool(engine.unfinished))
    counted.loop._use_idle_time()  # pyright: ignore[reportPrivateUsage]
    engine.finish_next()
    await running
    counted.loop._use_idle_time()  # pyright: ignore[reportPrivateUsage]
    assert engine.idle_calls == []
    engine.close()


async def test_an_engine_that_fails_while_idle_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_loop, "IDLE_S", 0.02)
    engine = FakeEngine()
    calls: list[int] = []

    def fail() -> bool:
        calls.append(1)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine, "idle", fail)
    counted = Counted(engine)
    for _ in range(2):
        await counted.run(1)
        await asyncio.sleep(0.1)
    assert calls == [1]
    assert counted.reasons == []
    engine.close()


async def test_a_failing_turn_is_fatal() -> None:
    counted = Counted(FakeEngine(completion=Completion.POLL))

    def fail(_state: RequestState) -> None:
        raise KeyError("books")

    counted.loop.scheduler.submit((fake_sequence([1]),), on_done=fail)
    counted.loop.wake()
    await asyncio.sleep(0.01)
    assert counted.reasons == ["the step loop raised KeyError: 'books'"]


def test_a_step_may_end_after_the_event_loop() -> None:
    engine = FakeEngine(by_hand=True)

    async def start() -> None:
        counted = Counted(engine)
        counted.loop.scheduler.submit((fake_sequence([1]),), on_done=lambda _state: None)
        counted.loop.wake()
        await asyncio.sleep(0)

    asyncio.run(start())
    engine.finish_next()
