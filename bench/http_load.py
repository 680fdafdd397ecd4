"""Load on one path of an HTTP server: by `wrk`, where it is installed, or else by a client in Python.

The client in Python takes as much processor time as the gateway, which it shares the machine with.
"""

import asyncio
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np
import uvloop

from rosebed.bench.targets.http_connection import HttpConnection, request_bytes

_SCRIPT = """
local file = io.open("{body}", "rb")
wrk.method, wrk.body = "POST", file:read("*a")
wrk.headers["content-type"] = "application/json"
file:close()
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.status + errors.read + errors.write + errors.timeout + errors.connect
  local format = '{{"num_requests": %d, "num_failed": %d, "wall_s": %f, "p50_ms": %f, "p99_ms": %f, "max_ms": %f}}'
  print(string.format(format, summary.requests, failed, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What clients saw."""

    num_requests: int
    wall_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    num_failed: int = 0


_WRK = shutil.which("wrk")


def client_name() -> str:
    """Which client there is."""
    return "one in Python (wrk is not installed)" if _WRK is None else "wrk"


def put_load(url: str, body: bytes, *, connections: int, seconds: float) -> Load:
    """POST `body` again and again over so many connections, each waiting for its answer. RuntimeError if any fails."""
    if _WRK is None:
        return uvloop.run(_by_python(url, body, connections=connections, seconds=seconds))
    load = _by_wrk(_WRK, url, body, connections=connections, seconds=seconds)
    if load.num_failed:
        raise RuntimeError(f"{load.num_failed} of {load.num_requests} requests failed")
    return load


def _by_wrk(wrk: str, url: str, body: bytes, *, connections: int, seconds: float) -> Load:
    with TemporaryDirectory() as scratch:
        script, body_file = Path(scratch, "wrk.lua"), Path(scratch, "body")
        script.write_text(_SCRIPT.format(body=body_file))
        body_file.write_bytes(body)
        # wrk knows whole seconds only.
        options = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script)]
        printed = subprocess.run([wrk, *options, url], check=True, capture_output=True, text=True).stdout
    return Load(**json.loads(printed.splitlines()[-1]))


async def _by_python(url: str, body: bytes, *, connections: int, seconds: float) -> Load:
    split = urlsplit(url)
    payload = request_bytes(split, split.path, body, None)
    took_ms: list[float] = []
    started_s = time.perf_counter()

    async def ask() -> None:
        connection = HttpConnection(split)
        while (sent_s := time.perf_counter()) < started_s + seconds:
            answer = await connection.exchange(payload)
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {answer.body.decode()}")
            took_ms.append((time.perf_counter() - sent_s) * 1e3)
        await connection.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    p50_ms, p99_ms, max_ms = np.percentile(took_ms, [50, 99, 100]).tolist()
    wall_s = time.perf_counter() - started_s
    return Load(num_requests=len(took_ms), wall_s=wall_s, p50_ms=p50_ms, p99_ms=p99_ms, max_ms=max_ms)
