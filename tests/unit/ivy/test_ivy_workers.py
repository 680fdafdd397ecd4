"""What the keeper of the workers makes of their ends; the workers are fakes, without processes."""

import asyncio
import os
import signal
import socket
from typing import cast

import pytest

from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.worker import UP, Order
from rosebed.ivy.workers import WorkerFailed, Workers

TIMEOUT_S = 5.0


class FakeProcess:
    """A worker that says and ends what the test tells it to."""

    def __init__(self, parent: socket.socket) -> None:
        self.parent = parent.dup()
        self._ended = asyncio.Event()
        self._exit_code = 0
        self.is_deaf = False

    def serve(self) -> None:
        self.parent.send(UP)

    def end(self, exit_code: int) -> None:
        self.parent.recv(1 << 16)  # its order: unread, it would reset the connection
        self._exit_code = exit_code
        self.parent.close()
        self._ended.set()

    def terminate(self) -> None:
        if not self.is_deaf:
            self._ended.set()

    def kill(self) -> None:
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._exit_code


class FakeWorkers(Workers):
    """Two workers; each that is started is in `started`."""

    def __init__(self) -> None:
        config = IvyConfig(models=(ModelConfig(tulips=("127.0.0.1:1",)),))
        super().__init__(Order(config=config, metrics_folder="", parent=0, listener=None, log_level=0), 2)
        self.started: asyncio.Queue[FakeProcess] = asyncio.Queue()

    async def _start(self, order: socket.socket) -> asyncio.subprocess.Process:
        process = FakeProcess(order)
        self.started.put_nowait(process)
        return cast(asyncio.subprocess.Process, process)

    async def has_read(self) -> None:
        """All that was said so far is heard."""
        for _ in range(10):
            await asyncio.sleep(0.001)


async def test_a_worker_that_dies_before_it_serves_does_not_end_one_that_does() -> None:
    workers = FakeWorkers()
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(workers.run())
        one, two = await workers.started.get(), await workers.started.get()
        await workers.has_read()
        one.serve()
        await workers.has_read()
        two.end(3)
        three = await workers.started.get()  # in its place
        three.serve()
        await workers.has_read()
        os.kill(os.getpid(), signal.SIGTERM)
        await running


async def test_when_one_dies_before_any_has_served_all_is_given_up() -> None:
    workers = FakeWorkers()
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(workers.run())
        _, two = await workers.started.get(), await workers.started.get()
        two.end(3)
        with pytest.raises(WorkerFailed, match="a worker ended with exit code 3 before it served") as failed:
            await running
    assert failed.value.exit_code == 3


@pytest.mark.parametrize(("num_deaf", "says"), [(1, "1 worker did not stop"), (2, "2 workers did not stop")])
async def test_those_that_do_not_stop_are_counted_and_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, num_deaf: int, says: str
) -> None:
    monkeypatch.setattr("rosebed.ivy.workers.STOP_GRACE_S", 0.05)
    workers = FakeWorkers()
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(workers.run())
        started = [await workers.started.get(), await workers.started.get()]
        await workers.has_read()
        for process in started:
            process.serve()
        for process in started[:num_deaf]:
            process.is_deaf = True
        await workers.has_read()
        os.kill(os.getpid(), signal.SIGTERM)
        await running
    assert f"{says} within 0.05 s: sending SIGKILL" in caplog.text
