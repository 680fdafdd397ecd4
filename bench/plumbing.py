"""What gRPC and HTTP add to a call in process, for one short text on a CPU: all three asked in turns.

    python bench/plumbing.py FOLDER --threads 2

FOLDER is a checkpoint. An inference server and a gateway in front of it run beside an `Embedder` in this process, each
with the same settings; each finds the caches as the one before left them. The gRPC client tokenizes, as the other two
do. Differences are medians over neighbours in time, which a busy machine moves less than each figure by itself.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as under `rosebed`; before torch is imported

import grpc.aio
import numpy as np
import uvloop
from gateway import wait_ready

from rosebed import Embedder
from rosebed.bench.targets.http_connection import HttpConnection, request_bytes
from rosebed.bench.targets.tulip_stream import StreamConnection
from rosebed.core.types import Float32Array, Sequence
from rosebed.proto.codec import request_message
from rosebed.proto.rosebed_pb2 import StreamRequest
from rosebed.rose.config import EngineConfig
from rosebed.text.tokenizer import TextTokenizer
from rosebed.wiring import SWITCH_INTERVAL_S

TEXT = "A man is playing a guitar on stage."
WARM_UP = 50
"""Rounds that are not counted."""

Ask = Callable[[], Awaitable[Float32Array]]


@contextmanager
def serving(arguments: argparse.Namespace) -> Generator[tuple[str, str]]:
    """The address of an inference server, and of a gateway before it."""
    with tempfile.TemporaryDirectory() as scratch:
        address = f"unix:{scratch}/tulip.sock"
        engine = ["--num-threads", str(arguments.threads), "--cpu-backend", arguments.backend, "--device", "cpu"]
        rosebed = [sys.executable, "-m", "rosebed"]
        tulip = subprocess.Popen([*rosebed, "tulip", arguments.folder, "--host", address, *engine])
        ivy = subprocess.Popen([*rosebed, "ivy", "--tulip", address, "--port", str(arguments.port)])
        try:
            yield address, f"http://127.0.0.1:{arguments.port}"
        finally:
            for process in (ivy, tulip):
                process.terminate()
                process.wait()


async def compare(arguments: argparse.Namespace, address: str, url: str) -> None:
    config = EngineConfig(device="cpu", num_threads=arguments.threads, cpu_backend=arguments.backend)
    embedder = Embedder(arguments.folder, config=config)
    tokenizer = TextTokenizer.load(embedder.spec)
    stream = StreamConnection(grpc.aio.insecure_channel(address), address, owns_channel=True)
    http = HttpConnection(urlsplit(url))
    body = json.dumps({"input": TEXT, "encoding_format": "base64"}).encode()
    payload = request_bytes(urlsplit(url), "/v1/embeddings", body, None)

    async def in_process() -> Float32Array:
        return embedder.embed([TEXT])[0]

    async def over_grpc() -> Float32Array:
        (text,) = tokenizer.tokenize([TEXT])
        sequence = Sequence(token_ids=text.token_ids, pool_spans=text.pool_spans)
        (answer,) = await stream.exchange(StreamRequest(embed=request_message([sequence], request_id=1)))
        return np.frombuffer(answer.outputs[0].data, "<f4")

    async def over_http() -> Float32Array:
        answer = await http.exchange(payload)
        return np.frombuffer(base64.b64decode(json.loads(answer.body)["data"][0]["embedding"]), "<f4")

    ways = {"in process": in_process, "gRPC": over_grpc, "HTTP": over_http}
    _report(await _in_turns(ways, arguments.seconds))
    await stream.close()
    await http.close()
    embedder.close()


async def _in_turns(ways: Mapping[str, Ask], seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each call, by way."""
    took_ms: dict[str, list[float]] = {name: [] for name in ways}
    vectors: list[Float32Array] = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        vectors.clear()
        for name, ask in ways.items():
            started_s = time.perf_counter()
            vectors.append(await ask())
            took_ms[name].append((time.perf_counter() - started_s) * 1e3)
    for vector in vectors:
        np.testing.assert_allclose(vector, vectors[0], atol=1e-5)
    return {name: times[WARM_UP:] for name, times in took_ms.items()}


def _report(took_ms: dict[str, list[float]]) -> None:
    print("| way | p50 ms | p99 ms |\n|---|---|---|")
    for name, times in took_ms.items():
        p50, p99 = np.percentile(times, [50, 99])
        print(f"| {name} | {p50:.2f} | {p99:.2f} |")
    for name, before in (("gRPC", "in process"), ("HTTP", "gRPC"), ("HTTP", "in process")):
        difference = np.median(np.subtract(took_ms[name], took_ms[before]))
        print(f"{name} minus {before}: {difference:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=str, help="a checkpoint")
    parser.add_argument("--threads", type=int, default=2, help="of each engine")
    parser.add_argument("--backend", default="auto", help="--cpu-backend of each")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--port", type=int, default=18080, help="of the gateway")
    arguments = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with serving(arguments) as (address, url):
        wait_ready(url)
        uvloop.run(compare(arguments, address, url))


if __name__ == "__main__":
    main()
