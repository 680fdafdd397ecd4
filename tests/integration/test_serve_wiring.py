"""Engine and server in one process, over `FakeEngine`: served until a signal, with start-up kept from collections."""

import asyncio
import gc
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rosebed import TokenClient
from rosebed.core.types import OutputKind
from rosebed.testing import FakeEngine, expected_rows, fake_info, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.wiring import serve_until_signal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    target = f"unix:{tmp_path}/tulip.sock"
    engine = FakeEngine()
    serving = asyncio.create_task(serve_until_signal(engine, TulipConfig(host=target)))
    while not gc.get_freeze_count():  # noqa: ASYNC110 - the collector tells nobody
        await asyncio.sleep(0.01)
    with TokenClient(target) as client:
        vectors = await asyncio.to_thread(client.embed, [[5, 6]])
    np.testing.assert_array_equal(vectors, expected_rows(fake_sequence([5, 6]), OutputKind.DENSE, fake_info()))
    assert engine.warmed_up
    os.kill(os.getpid(), number)
    await serving
    assert gc.get_freeze_count() == 0
    engine.close()
