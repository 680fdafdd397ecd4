"""Who is watched for leaving, and what leaving does."""

import asyncio
import time
from typing import Any

import pytest

from rosebed.ivy.http.call import Call
from rosebed.ivy.http.disconnects import DisconnectWatch
from rosebed.ivy.http.intake import BodyIntake


class Client:
    """A client that sends a body at once and leaves when told."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked_after_body = 0
        self._sent = False

    async def receive(self) -> dict[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": b"{}"}
        self.asked_after_body += 1
        await self.left.wait()
        return {"type": "http.disconnect"}


async def handle(client: Client, watch: DisconnectWatch, *, reads: bool = True, takes_s: float = 60) -> Call:
    call = Call({"type": "http", "headers": []}, client.receive)
    watch.add(call, time.perf_counter())
    try:
        if reads:
            await call.read_json(BodyIntake(max_bytes=100, timeout_s=10))
        await asyncio.sleep(takes_s)
    except asyncio.CancelledError:
        if not call.disconnected:
            raise
    finally:
        watch.discard(call)
    return call


@pytest.fixture
def watch() -> DisconnectWatch:
    return DisconnectWatch(tick_s=0.01)


async def test_leaving_cancels_a_long_request(watch: DisconnectWatch) -> None:
    runner = asyncio.create_task(watch.run())
    client = Client()
    request = asyncio.create_task(handle(client, watch))
    await asyncio.sleep(0.05)
    assert (client.asked_after_body, len(watch)) == (1, 1)
    client.left.set()
    call = await asyncio.wait_for(request, 1)
    assert call.disconnected
    assert len(watch) == 0
    runner.cancel()


async def test_short_request_is_never_watched(watch: DisconnectWatch) -> None:
    runner = asyncio.create_task(watch.run())
    client = Client()
    call = await handle(client, watch, takes_s=0)
    await asyncio.sleep(0.03)
    assert (client.asked_after_body, call.disconnected) == (0, False)
    runner.cancel()


async def test_request_whose_body_is_not_read_is_not_watched(watch: DisconnectWatch) -> None:
    runner = asyncio.create_task(watch.run())
    client = Client()
    await handle(client, watch, reads=False, takes_s=0.05)
    assert client.asked_after_body == 0
    runner.cancel()
