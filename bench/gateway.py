"""What a request costs the gateway: processor time of its worker under load, and how long each stage takes by itself.

    python bench/gateway.py FOLDER

FOLDER is a checkpoint (no weights are read). The inference server is a `FakeEngine` whose vectors cost nothing. On a
machine that does other work too, compare figures of one run only.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson
import uvloop

from rosebed.bench.targets.http_connection import HttpConnection, request_bytes
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.encodings import to_base64
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.outputs import OutputLayout, OutputSpec, RowsPer, RowStatus, StepResult
from rosebed.core.types import Batch, OutputKind
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.dialects.openai import EmbeddingsBody
from rosebed.ivy.http.json_body import JsonReader
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http1.answers import Clock, answer_head
from rosebed.ivy.http1.limits import ConnectionLimits
from rosebed.ivy.http1.parser import RequestParser
from rosebed.ivy.model import ServedModel
from rosebed.proto.codec import Assembler, request_message
from rosebed.proto.link import frame
from rosebed.proto.rosebed_pb2 import DTYPE_FLOAT32, EmbedResponse, Output, StreamRequest
from rosebed.testing import FakeEngine, fake_info
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

DIM = 1024
TEXT = "A man is playing a guitar on stage."
OUTPUTS = {OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=DIM)}


def bodies(vocab_size: int) -> dict[str, bytes]:
    """Requests by name: a short text, and ids."""
    ids = np.random.default_rng(0).integers(1000, min(vocab_size, 30_000), 4096).tolist()
    inputs: dict[str, Any] = {"text": TEXT, "128 ids": ids[:128], "4096 ids": ids}
    return {
        name: json.dumps({"input": value, "encoding_format": "base64"}, separators=(",", ":")).encode()
        for name, value in inputs.items()
    }


class IdleEngine(FakeEngine):
    """Answers with the same numbers whatever it is asked."""

    numbers = np.random.default_rng(0).normal(0, 0.03, 1 << 20).astype(np.float32).view(np.uint8)

    def compute(self, batch: Batch) -> StepResult:
        layout = OutputLayout.plan(batch, self.info.outputs)
        result = StepResult(layout=layout, buffer=self.numbers[: layout.num_bytes].copy(), device_ns=1000)
        for position in range(batch.num_sequences):
            result.status[position] = RowStatus.OK
        return result


async def serve_tulip(folder: str, path: str) -> None:
    """Until killed."""
    spec = resolve_model_spec(CheckpointFiles.read(Path(folder)))
    info = replace(
        fake_info(max_length=spec.max_length, outputs=OUTPUTS),
        model=folder,
        vocab_size=spec.vocab_size,
        fingerprint=spec.fingerprint,
    )
    server = TulipServer(IdleEngine(info), TulipConfig(host=f"unix:{path}"))
    await server.start()
    await server.wait_closed()


@dataclass(frozen=True, kw_only=True)
class Load:
    """What came of one body under load."""

    num_requests: int
    wall_s: float
    worker_s: float
    """Processor time of the worker."""
    took_ms: list[float]

    def line(self, name: str) -> str:
        p50, p99 = np.percentile(self.took_ms, [50, 99])
        return (
            f"| {name} | {self.worker_s / self.num_requests * 1e6:.0f} | {self.num_requests / self.wall_s:.0f} "
            f"| {p50:.2f} | {p99:.2f} |"
        )


async def load(url: str, body: bytes, worker: int, *, connections: int, seconds: float) -> Load:
    """Ask again and again over so many connections, each waiting for its answer."""
    split = urlsplit(url)
    payload = request_bytes(split, "/v1/embeddings", body, None)
    took_ms: list[float] = []
    before_s, started_s = _processor_s(worker), time.perf_counter()
    deadline_s = started_s + seconds

    async def ask() -> None:
        connection = HttpConnection(split)
        while (sent_s := time.perf_counter()) < deadline_s:
            answer = await connection.exchange(payload)
            assert answer.status == 200, answer.body
            took_ms.append((time.perf_counter() - sent_s) * 1e3)
        await connection.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    wall_s = time.perf_counter() - started_s
    return Load(num_requests=len(took_ms), wall_s=wall_s, worker_s=_processor_s(worker) - before_s, took_ms=took_ms)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def under_load(arguments: argparse.Namespace) -> None:
    """Print a table: processor time of the worker for each request, and what clients saw."""
    with tempfile.TemporaryDirectory() as scratch:
        path = f"{scratch}/tulip.sock"
        tulip = subprocess.Popen([sys.executable, __file__, arguments.folder, "--tulip", path])
        script = "import sys; from rosebed.ivy.server import serve; "
        script += "from rosebed.ivy.config import IvyConfig, ModelConfig; model = ModelConfig(tulips=(sys.argv[1],)); "
        script += "serve(IvyConfig(models=(model,), port=0), on_listening=lambda port: print(port, flush=True))"
        ivy = subprocess.Popen([sys.executable, "-c", script, f"unix:{path}"], stdout=subprocess.PIPE, text=True)
        try:
            assert ivy.stdout is not None
            url = f"http://127.0.0.1:{int(ivy.stdout.readline())}"
            uvloop.run(_wait_ready(url))
            (worker,) = (int(pid) for pid in Path(f"/proc/{ivy.pid}/task/{ivy.pid}/children").read_text().split())
            print("| request | worker µs | requests/s | p50 ms | p99 ms |\n|---|---|---|---|---|")
            for name, body in bodies(30_000).items():
                for seconds in (0.5, arguments.seconds):
                    measured = uvloop.run(load(url, body, worker, connections=arguments.connections, seconds=seconds))
                print(measured.line(name), flush=True)
        finally:
            ivy.send_signal(signal.SIGTERM)
            ivy.wait()
            tulip.kill()
            tulip.wait()


async def _wait_ready(url: str) -> None:
    connection = HttpConnection(urlsplit(url))
    payload = request_bytes(urlsplit(url), "/ready", None, None)
    async with asyncio.timeout(60):
        while True:
            try:
                if (await connection.exchange(payload)).status == 200:
                    return
            except Exception:  # not there yet
                await asyncio.sleep(0.1)


def stages(folder: str) -> None:
    """Print a table: microseconds of each stage by itself, the best of many rounds."""
    model = ServedModel.load(folder, ModelConfig(tulips=("unix:none",)))
    columns = {name: _stages(model, body) for name, body in bodies(model.spec.vocab_size).items()}
    print(f"| stage, µs | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for stage in next(iter(columns.values())):
        print(f"| {stage} | {' | '.join(f'{column[stage]:.1f}' for column in columns.values())} |")
    print(f"| sum | {' | '.join(f'{sum(column.values()):.1f}' for column in columns.values())} |")


def _stages(model: ServedModel, body: bytes) -> dict[str, float]:
    payload = request_bytes(urlsplit("http://127.0.0.1:8080"), "/v1/embeddings", body, None)
    parser = RequestParser(ConnectionLimits(), lambda: None)
    reader = JsonReader(EmbeddingsBody)

    def parse() -> None:
        parser.feed(payload)
        parser.waiting.clear()

    def tokenize() -> Any:
        return model.tokenize(request, model.tokenize_options(request, auto_truncate=False))

    def pack() -> bytes:
        message = request_message(model.sequences(tokenized, request), request_id=1)
        return frame(StreamRequest(embed=message))

    def unpack() -> Any:
        assembler = Assembler(sequences, OUTPUTS)
        assembler.add(EmbedResponse.FromString(answered))
        return assembler.result()

    decoded = reader.read(body)
    request = decoded.to_request()
    tokenized = tokenize()
    sequences = model.sequences(tokenized, request)
    numbers = np.random.default_rng(0).normal(0, 0.03, DIM).astype("<f4")
    output = Output(kind=1, dtype=DTYPE_FLOAT32, dim=DIM, rows=1, data=numbers.tobytes())  # pyright: ignore[reportArgumentType]
    answered = EmbedResponse(request_id=1, num_sequences=1, outputs=[output], last=True).SerializeToString()
    reply, clock = Reply(200, b""), Clock()

    def encode() -> bytes:
        return orjson.dumps({"object": "embedding", "index": 0, "embedding": to_base64(numbers)})

    def head() -> bytes:
        return answer_head(reply, b"-" * 32, date=clock.header(), closes=False, says_keep_alive=False)

    return {
        "HTTP: head and body": _best_us(parse),
        "JSON: decode, look for duplicates": _best_us(lambda: reader.read(body)),
        "to the gateway's own request": _best_us(decoded.to_request),
        "tokenize, or check the ids": _best_us(tokenize),
        "sequences to a message": _best_us(pack),
        "message to rows": _best_us(unpack),
        "row to JSON (base64)": _best_us(encode),
        "HTTP: head of the answer": _best_us(head),
    }


def _best_us(stage: Callable[[], Any]) -> float:
    number = max(1, int(0.02 / max(timeit.timeit(stage, number=5) / 5, 1e-9)))
    return min(timeit.repeat(stage, number=number, repeat=30)) / number * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a checkpoint that takes 4096 tokens")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tulip", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tulip:
        uvloop.run(serve_tulip(arguments.folder, arguments.tulip))
        return
    under_load(arguments)
    print()
    stages(arguments.folder)


if __name__ == "__main__":
    main()
