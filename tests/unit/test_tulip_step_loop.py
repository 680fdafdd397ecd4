"""When turns are run: as often as needed, and never otherwise."""

import asyncio

import pytest

from rosebed.core.engine import Completion
from rosebed.testing import FakeEngine, StepTime, fake_sequence
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

    def _count(self) -> None:
        self.turns += 1
        self._turn()

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


@pytest.mark.parametrize("completion", list(Completion))
async def test_what_arrives_in_one_iteration_shares_a_batch(completion: Completion) -> None:
    counted = Counted(FakeEngine(completion=completion))
    await asyncio.gather(*(counted.run(n) for n in range(1, 6)))
    assert [batch.num_sequences for batch in counted.engine.batches] == [5]
    counted.engine.close()


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
