"""Rosebed, vLLM and sentence-transformers on one GPU, over the same route, with token ids and base64.

    python bench/peers/h200.py --vllm vllm_0.22.0_sm90.tar.xz --out results            (about 4 minutes a model)
    python bench/peers/h200.py --servers rosebed --models bge-m3 --out results

Checkpoints have the real shapes and random weights, and are the same for all. vLLM comes out of an archive of its
installed files, so that nothing is fetched. All servers of a model are up at once and take turns; the 4096-token
throughput is sampled with smaller requests.
"""

import argparse
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measure import measure
from servers import Server, running

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from checkpoints import BGE_M3, KINDS, PPLX, write_checkpoint  # noqa: E402 - a script beside this one

START_S = 300.0
GPU_SHARE = "0.3"
"""Of the GPU's memory, for vLLM, so that the others fit beside it."""
MAX_LENGTH = "8192"
WORKERS = "2"
"""Rosebed's gateway processes."""
POOLER = {BGE_M3: '{"pooling_type":"CLS"}', PPLX: '{"pooling_type":"MEAN"}'}

ROSEBED, VLLM, LIBRARY = "rosebed", "vllm", "sentence-transformers"

FULL = (
    ("latency", ("--tokens", "128,512,4096")),
    ("scoring", ("--inputs", "5,25,50")),
    ("throughput", ("--tokens", "512,1024")),
    ("throughput", ("--tokens", "4096", "--inputs", "25")),
    ("concurrency", ("--input-kind", "ids", "--clients", "1,16,64")),
)
SHORT = (
    ("latency", ("--tokens", "128,4096")),
    ("throughput", ("--tokens", "512")),
)
"""For the library, which is far behind where there is more than one client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model, in both forms, and where its servers' software is."""

    kind: str
    own: Path
    """As it is published."""
    stock: Path
    """As stock libraries read it."""
    vllm_site: Path
    """vLLM's site-packages."""
    load_format: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for h200.jsonl and the servers' logs")
    parser.add_argument("--vllm", type=Path, help="vLLM's site-packages as .tar.xz; without it vLLM is left out")
    parser.add_argument("--models", default=",".join(KINDS))
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--duration", default="2", help="seconds of each case")
    parser.add_argument("--load-format", default="auto", help="vLLM's; dummy does not read the weights")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    archive: Path | None = arguments.vllm
    chosen = [name for name in arguments.servers.split(",") if name != VLLM or archive is not None]
    with tempfile.TemporaryDirectory(prefix="h200-") as directory:
        site = Path(directory) / "vllm"
        site.mkdir()
        if archive is not None and VLLM in chosen:
            unpack(archive, site)
        for kind in arguments.models.split(","):
            own = Path(directory) / kind
            subject = Subject(
                kind=kind,
                own=own,
                stock=own.with_name(f"{kind}-stock"),
                vllm_site=site,
                load_format=arguments.load_format,
            )
            write_checkpoint(kind, subject.own, stock=subject.stock)
            compare(kind, [SERVERS[name](subject) for name in chosen], arguments.out, arguments.duration)


def unpack(archive: Path, folder: Path) -> None:
    """Put the archive's content into `folder`."""
    with tarfile.open(archive, "r:xz") as file:
        file.extractall(folder, filter="data")


def rosebed(subject: Subject) -> Server:
    command = [sys.executable, "-m", "rosebed", "serve", str(subject.own), "--port", "{port}", "--workers", WORKERS]
    return Server(name=ROSEBED, command=command)


def vllm(subject: Subject) -> Server:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(subject.stock)]
    command += ["--runner", "pooling", "--pooler-config", POOLER[subject.kind], "--dtype", "bfloat16"]
    command += ["--max-model-len", MAX_LENGTH, "--load-format", subject.load_format]
    command += ["--gpu-memory-utilization", GPU_SHARE, "--no-enable-prefix-caching"]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--served-model-name", subject.kind]
    environment = {
        "PYTHONPATH": str(subject.vllm_site),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Server(name=VLLM, command=command, environment=environment)


def library(subject: Subject) -> Server:
    command = [sys.executable, str(HERE / "embed_server.py"), LIBRARY, str(subject.stock), "--port", "{port}"]
    command += ["--device", "cuda", "--dtype", "bfloat16"]
    return Server(name=LIBRARY, command=command, environment={"HF_HUB_OFFLINE": "1"})


SERVERS: dict[str, Callable[[Subject], Server]] = {ROSEBED: rosebed, VLLM: vllm, LIBRARY: library}


def compare(model: str, servers: list[Server], out: Path, duration: str) -> None:
    """Start the servers, measure each, stop them."""
    logs = out / model
    logs.mkdir(exist_ok=True)
    begun_s = time.monotonic()
    with running(servers, logs=logs, start_s=START_S) as started:
        print(f"{model}: all ready after {time.monotonic() - begun_s:.0f} s", flush=True)
        for server in started:
            options = ("--duration", duration, "--warmup", "0.5", "--vocab-size", "100000")
            for scenario, own in SHORT if server.name == LIBRARY else FULL:
                measure(
                    {"model": model, "peer": server.name}, scenario, server.url, (*own, *options), out / "h200.jsonl"
                )
        print(f"{model}: done after {time.monotonic() - begun_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
