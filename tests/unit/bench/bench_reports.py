"""Reports of runs that never were, and the schema that every report follows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

import rosebed.bench
from rosebed.bench.case import Case
from rosebed.bench.config import BenchConfig
from rosebed.bench.environment import Environment
from rosebed.bench.requests import RequestShape
from rosebed.bench.run import BenchReport, CaseResult, ClientCost
from rosebed.bench.samples import Recording, Sample
from rosebed.bench.statistics import figures_of, latencies_ns
from rosebed.bench.targets.base import Stages, TargetInfo
from rosebed.core.types import Lane

SCHEMA = json.loads((Path(rosebed.bench.__file__).parent / "result.schema.json").read_text())
MS = 1_000_000

ENVIRONMENT = Environment(
    date="2026-01-02T03:04:05+00:00",
    command="rosebed bench latency",
    commit="0123456789ab",
    cpu="A CPU",
    num_cpus=2,
    gpus=("NVIDIA H200, 580.1, 143771 MiB",),
    system="Linux 6",
    python="3.11.7",
    packages={"rosebed": "0.1.0"},
)
INFO = TargetInfo(
    server="rosebed tulip 0.1.0", model="m", takes_ids=True, takes_text=False, dtype="bfloat16", device="cuda:0"
)
STAGES = Stages(queue_ns=1 * MS, compute_ns=6 * MS, total_ns=8 * MS, device_ns=4 * MS, num_steps=2)


def case(**settings: Any) -> Case:
    given: dict[str, Any] = {
        "label": "1 × 128 tokens, 1 client", "shapes": (RequestShape((128,)),), "as_text": False, "duration_s": 1,
        "warmup_s": 0, **settings,
    }  # fmt: skip
    return Case(**given)


def result(latencies_ms: list[int], of: Case, *, failures: int = 0, lane: Lane = Lane.ONLINE) -> CaseResult:
    """As of requests sent one after the other."""
    samples = [Sample(0, 0, ms * MS, 1, 128, lane, False, STAGES) for ms in latencies_ms]
    samples += [Sample(0, 0, 1 * MS, 1, 128, lane, True, Stages())] * failures
    recording = Recording.of(samples, Counter({"full": failures} if failures else {}))
    return CaseResult(
        case=of,
        figures=figures_of(recording),
        client=ClientCost(cpu_us_per_request=50.0, busiest=0.25, null=None),
        failures=dict(recording.failures),
        divergence=1e-7,
        latencies_ms=np.sort(latencies_ns(recording.succeeded)) / 1e6,
    )


def report(*results: CaseResult, scenario: str = "latency", **settings: Any) -> BenchReport:
    config = BenchConfig(target="grpc://host:1", api_key="SECRET")
    return BenchReport(scenario=scenario, config=config, info=INFO, results=list(results), notes=["a note"], **settings)


def check_schema(line: str) -> dict[str, Any]:
    """The report that `line` holds, which must follow the schema."""
    assert "\n" not in line
    value = json.loads(line, parse_constant=_refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
