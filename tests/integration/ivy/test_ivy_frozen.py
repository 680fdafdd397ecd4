"""Inference servers that are there and do not answer, or answer late."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from ivy_support import engine_info, ivy_config, running_app, running_tulip, until_ready, vectors_of

from rosebed.core.engine import EngineInfo
from rosebed.testing import FakeEngine, StepTime


@pytest.fixture
def tulip_process(checkpoint: Path) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A server that can be frozen, and its port."""
    script = Path(__file__).with_name("tulip_process.py")
    process = subprocess.Popen([sys.executable, str(script), str(checkpoint)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fiftieth of the usual patience."""
    monkeypatch.setattr("rosebed.ivy.upstream.liveness.ASK_EVERY_S", 0.1)
    monkeypatch.setattr("rosebed.ivy.upstream.liveness.ANSWER_WITHIN_S", 0.5)
    monkeypatch.setattr("rosebed.ivy.upstream.replica.INFO_TIMEOUT_S", 0.5)


async def until_said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Return once it is in the log; TimeoutError after five seconds."""
    async with asyncio.timeout(5):
        while text not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("impatient")
async def test_a_frozen_server_is_left_and_taken_again(
    info: EngineInfo, tulip_process: tuple[subprocess.Popen[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    process, port = tulip_process
    async with running_app(ivy_config(tulips=(f"127.0.0.1:{port}",))) as client:
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(5):
            answer = await client.post("/v1/embeddings", json={"input": "hello"})
        assert answer.status_code == 503
        assert (await client.get("/ready")).status_code == 503
        await until_said(caplog, "is not in use: it has answered nothing for 0.5 s")
        process.send_signal(signal.SIGCONT)
        await until_ready(client)
        assert len(vectors_of(await client.post("/v1/embeddings", json={"input": "hello"}))) == 1


@pytest.mark.usefixtures("impatient")
async def test_what_a_frozen_server_holds_is_asked_of_another(
    info: EngineInfo, tulip_process: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = tulip_process
    async with running_tulip(FakeEngine(info)) as other:
        targets = (f"127.0.0.1:{port}", f"127.0.0.1:{other.port}")
        async with running_app(ivy_config(tulips=targets)) as client:
            async with asyncio.timeout(10):
                while (await client.get("/ready")).json()["replicas"] != 2:  # noqa: ASYNC110 - no event over HTTP
                    await asyncio.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            requests = [client.post("/v1/embeddings", json={"input": "hello"}) for _ in range(8)]
            async with asyncio.timeout(5):
                answers = await asyncio.gather(*requests)
            assert [answer.status_code for answer in answers] == [200] * 8


async def test_a_busy_server_is_taken_at_once(info: EngineInfo) -> None:
    one_by_one = replace(info, limits=replace(info.limits, sequences=1), max_in_flight=1)
    async with running_tulip(FakeEngine(one_by_one, step_time=StepTime(base_s=0.2))) as tulip:
        config = ivy_config(tulips=(f"127.0.0.1:{tulip.port}",))
        async with running_app(config) as client:
            queued = [asyncio.create_task(client.post("/v1/embeddings", json={"input": "hello"})) for _ in range(30)]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(2), running_app(config):
                pass
            assert not queued[-1].done()
            for request in queued:
                request.cancel()


async def test_a_server_that_takes_shorter_sequences_is_refused(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(engine_info(checkpoint), max_length=8)
    async with running_tulip(FakeEngine(short)) as tulip:
        config = ivy_config(tulips=(f"127.0.0.1:{tulip.port}",), model=str(checkpoint))
        async with running_app(config, wait_ready=False) as client:
            await until_said(caplog, "it takes 8 tokens, the gateway 16")
            assert (await client.get("/ready")).status_code == 503


async def test_without_a_limit_of_its_own_the_gateway_takes_the_servers(checkpoint: Path) -> None:
    short = replace(engine_info(checkpoint), max_length=8)
    async with (
        running_tulip(FakeEngine(short)) as tulip,
        running_app(ivy_config(tulips=(f"127.0.0.1:{tulip.port}",))) as client,
    ):
        answer = await client.post("/v1/embeddings", json={"input": ["hello", "hello " * 9]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[1]")
        assert "8" in answer.json()["error"]["message"]
