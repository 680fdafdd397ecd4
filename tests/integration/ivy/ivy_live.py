"""Gateways in processes of their own, their inference server in a thread of the test's."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
from ivy_support import running_tulip

from rosebed.testing import FakeEngine

STARTUP_S = 30


@contextmanager
def tulip_thread(engine: FakeEngine, **settings: Any) -> Generator[int]:
    """An inference server in a thread with an event loop of its own; the port it listens on."""
    started = threading.Event()
    ports: list[int] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with running_tulip(engine, **settings) as server:
            ports.append(server.port)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert started.wait(STARTUP_S)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@contextmanager
def ivy_process(*, log: IO[str] | None = None, **settings: Any) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A ready gateway process and its URL. `settings` are as in `ivy_config`; its stderr goes to `log`."""
    script = Path(__file__).with_name("ivy_process.py")
    process = subprocess.Popen(
        [sys.executable, str(script), json.dumps({"port": 0, **settings})],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with client_of(settings.get("uds")) as client:
            wait_until_ready(client, url)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STARTUP_S)
        if process.stdout is not None:
            process.stdout.close()


def client_of(uds: str | None) -> httpx.Client:
    """A client of whatever listens at `uds`, or of the address in a request's URL."""
    return httpx.Client(transport=httpx.HTTPTransport(uds=uds))


def wait_until_ready(client: httpx.Client, url: str) -> None:
    """Return once `/ready` says so."""
    deadline = time.monotonic() + STARTUP_S
    while time.monotonic() < deadline:
        try:
            if client.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"{url} is not ready")
