"""What a request costs the gateway: processor time of its worker under load, and how long each stage takes by itself.

    python bench/gateway.py FOLDER

FOLDER is a checkpoint (no weights are read). The inference server costs next to nothing (`null_tulip`), the client as
little where `wrk` is installed, and the worker has a core to itself if there are two. On a machine that does other work
too, compare figures of one run only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import null_tulip
import numpy as np
from http_load import Load, client_name, put_load

from rosebed.bench.targets.http_connection import request_bytes
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import ModelSpec, resolve_model_spec
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import OutputKind
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
from rosebed.testing import fake_info

DIM = 1024
TEXT = "A man is playing a guitar on stage."
OUTPUTS = {OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=DIM)}
WARM_UP_S = 1.0
READY_WITHIN_S = 60.0


def bodies(spec: ModelSpec) -> dict[str, bytes]:
    """Requests by name: a short text, and ids, as many as the model takes."""
    ids = np.random.default_rng(0).integers(1000, min(spec.vocab_size, 30_000), 4096).tolist()
    inputs: dict[str, Any] = {"short text": TEXT}
    for length in (128, 4096):
        if length <= spec.max_length:
            inputs[f"{length} ids"] = ids[:length]
        else:
            print(f"left out: {length} ids, as this model takes {spec.max_length}")
    return {
        name: json.dumps({"input": value, "encoding_format": "base64"}, separators=(",", ":")).encode()
        for name, value in inputs.items()
    }


def serve_tulip(folder: str, address: str) -> None:
    """Until killed."""
    spec = resolve_model_spec(CheckpointFiles.read(Path(folder)))
    info = replace(
        fake_info(max_length=spec.max_length, outputs=OUTPUTS),
        model=folder,
        vocab_size=spec.vocab_size,
        fingerprint=spec.fingerprint,
    )
    null_tulip.serve(info, address)


_SERVE_IVY = """
import os, sys
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.server import serve
os.sched_setaffinity(0, {int(sys.argv[2])})
config = IvyConfig(models=(ModelConfig(tulips=(sys.argv[1],)),), port=0)
serve(config, on_listening=lambda port: print(port, flush=True))
"""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway of one worker."""

    url: str
    worker: int
    """Its process id."""

    def processor_s(self) -> float:
        """Processor time that the worker has taken."""
        fields = Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_ready(url: str) -> None:
    """Return once the gateway there serves. TimeoutError if it does not."""
    deadline_s = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            with urlopen(f"{url}/ready", timeout=1):  # noqa: S310 - our own http address
                return
        except (URLError, ConnectionError, TimeoutError):  # not there yet
            time.sleep(0.1)
    raise TimeoutError(f"the gateway is not ready after {READY_WITHIN_S:g} s")


@contextmanager
def gateway(folder: str, core: int) -> Generator[Gateway]:
    """One with its worker on `core`, and an inference server on the cores of this process."""
    with tempfile.TemporaryDirectory() as scratch:
        address = f"unix:{scratch}/tulip.sock"
        tulip = subprocess.Popen([sys.executable, __file__, folder, "--tulip", address])
        ivy = subprocess.Popen(
            [sys.executable, "-c", _SERVE_IVY, address, str(core)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert ivy.stdout is not None
            url = f"http://127.0.0.1:{int(ivy.stdout.readline())}"
            wait_ready(url)
            (worker,) = (int(pid) for pid in Path(f"/proc/{ivy.pid}/task/{ivy.pid}/children").read_text().split())
            yield Gateway(url=url, worker=worker)
        finally:
            ivy.send_signal(signal.SIGTERM)
            ivy.wait()
            tulip.kill()
            tulip.wait()


def under_load(folder: str, asked: dict[str, bytes], *, connections: int, seconds: float) -> None:
    """Print a table: processor time of the worker for each request, and what clients saw."""
    core, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {core})
    where = "on a core of its own" if others else "on the one core that there is"
    print(f"client: {client_name()}, {connections} connections; the worker is {where}\n")
    with gateway(folder, core) as measured:
        print("| request | worker µs | of its core | requests/s | p50 ms | p99 ms | max ms |")
        print("|---|---|---|---|---|---|---|")
        for name, body in asked.items():
            put = partial(put_load, f"{measured.url}/v1/embeddings", body, connections=connections)
            put(seconds=WARM_UP_S)
            before_s = measured.processor_s()
            load = put(seconds=seconds)
            print(_line(name, load, measured.processor_s() - before_s), flush=True)


def _line(name: str, load: Load, worker_s: float) -> str:
    return (
        f"| {name} | {worker_s / load.num_requests * 1e6:.0f} | {worker_s / load.wall_s:.0%} "
        f"| {load.num_requests / load.wall_s:.0f} | {load.p50_ms:.2f} | {load.p99_ms:.2f} | {load.max_ms:.1f} |"
    )


def stages(folder: str, asked: dict[str, bytes]) -> None:
    """Print a table: microseconds of each stage by itself, the best of many rounds."""
    model = ServedModel.load(folder, ModelConfig(tulips=("unix:none",)))
    columns = {name: _stages(model, body) for name, body in asked.items()}
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
        return msgspec.json.encode({"object": "embedding", "index": 0, "embedding": numbers.tobytes()})

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
    parser.add_argument("folder", help="a checkpoint; what is over its limit on tokens is left out")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tulip", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tulip:
        serve_tulip(arguments.folder, arguments.tulip)
        return
    asked = bodies(resolve_model_spec(CheckpointFiles.read(Path(arguments.folder))))
    stages(arguments.folder, asked)
    print()
    under_load(arguments.folder, asked, connections=arguments.connections, seconds=arguments.seconds)


if __name__ == "__main__":
    main()
