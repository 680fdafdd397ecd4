"""The same server under uvloop, as it runs in production."""

import asyncio

import pytest
import uvloop
from tulip_live import live

from rosebed.core.engine import Completion
from rosebed.testing import FakeEngine, StepTime, fake_sequence


@pytest.mark.parametrize("completion", list(Completion))
def test_a_stream_under_uvloop(completion: Completion) -> None:
    async def serve() -> None:
        engine = FakeEngine(completion=completion, step_time=StepTime(base_s=0.0005))
        async with live(engine) as tulip, tulip.stream() as stream:
            batches = [[fake_sequence([n, k]) for k in range(n % 3 + 1)] for n in range(200)]
            replies = await asyncio.gather(*(stream.embed(own, n) for n, own in enumerate(batches)))
            for sequences, reply in zip(batches, replies, strict=True):
                tulip.check(sequences, reply)

    uvloop.run(serve())
