"""Every scenario against live servers: Tulip over gRPC, Ivy over HTTP, both over `FakeEngine`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bench_live import MINILM, STEP_TIME, http_stub, minilm_info, running_ivy, running_tulip
from bench_reports import ENVIRONMENT, check_schema

from rosebed import __version__
from rosebed.bench.config import BenchConfig
from rosebed.bench.report import as_json
from rosebed.bench.run import BenchReport, run_bench
from rosebed.core.encodings import to_base64
from rosebed.core.errors import ServerError, SetupError
from rosebed.core.types import Lane
from rosebed.testing import FakeEngine

SCENARIOS: dict[str, dict[str, Any]] = {
    "latency": {"tokens": (8, 200)},
    "scoring": {"inputs": (2, 5), "tokens": (16,)},
    "throughput": {"inputs": (20,), "tokens": (16,), "clients": (2,)},
    "concurrency": {"tokens": (16,), "clients": (1, 3)},
    "open": {"rate": 100.0, "duration": 0.3},
    "sweep": {"rate": 50.0, "p99_bound_ms": 0.1, "lengths": "fixed:4", "processes": 1},
}
CASES = {"latency": 2, "scoring": 2, "throughput": 1, "concurrency": 2, "open": 1, "sweep": 1}


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine(minilm_info(), step_time=STEP_TIME)


@pytest.fixture(scope="module")
def tulip(engine: FakeEngine) -> Iterator[str]:
    with running_tulip(engine) as address:
        yield address


@pytest.fixture(scope="module")
def ivy(tulip: str) -> Iterator[str]:
    with running_ivy(tulip) as url:
        yield url


def run(scenario: str, target: str, **settings: Any) -> BenchReport:
    given: dict[str, Any] = {"duration": 0.15, "warmup": 0.02, "processes": 2, **settings}
    return run_bench(scenario, BenchConfig(target=target, **given))


def check(report: BenchReport, scenario: str) -> dict[str, Any]:
    """What holds of every run that went well; the report as programs read it."""
    value = check_schema(as_json(report, ENVIRONMENT))
    assert len(value["cases"]) == CASES[scenario]
    for case in value["cases"]:
        assert (case["num_failed"], case["failures"]) == (0, {})
        assert case["num_requests"] > 0
        assert case["latency_ms"]["p50"] > STEP_TIME.base_s * 1e3
        assert case["client"]["cpu_us_per_request"] > 0
        assert 0 < case["client"]["null_ms"]["p50"] < case["latency_ms"]["p50"]
        assert case["divergence"] < 1e-6
    return value


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_scenarios_over_grpc(scenario: str, tulip: str) -> None:
    value = check(run(scenario, f"grpc://{tulip}", **SCENARIOS[scenario]), scenario)
    assert value["target"]["server"].startswith("rosebed tulip ")
    for case in value["cases"]:
        assert case["device_per_step_ms"]["p50"] == 2.0
        assert case["plumbing_ms"]["max"] > 0
        assert {"queue", "compute", "reply", "outside"} == set(case["stages_ms"])
    if scenario == "open":
        assert set(value["cases"][0]["lanes_ms"]) == {"online", "bulk"}


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_scenarios_over_http(scenario: str, ivy: str, engine: FakeEngine) -> None:
    engine.batches.clear()
    value = check(run(scenario, ivy, **SCENARIOS[scenario]), scenario)
    assert (value["target"]["server"], value["target"]["max_length"]) == (f"rosebed {__version__}", 256)
    assert {case["input"] for case in value["cases"]} == {"text" if scenario == "concurrency" else "ids"}
    assert all(case["device_per_step_ms"] is None for case in value["cases"])
    assert {batch.lane for batch in engine.batches} == ({Lane.ONLINE, Lane.BULK} if scenario == "open" else {0})


def test_texts_have_exactly_the_tokens_asked_for(ivy: str, engine: FakeEngine) -> None:
    engine.batches.clear()
    report = run("concurrency", ivy, tokens=(100,), clients=(1,), requests=3)
    assert not any("counts" in note for note in report.notes)
    measured = list(engine.batches)[-3:]
    assert [batch.num_tokens for batch in measured] == [100, 100, 100]
    # Special tokens are the server's, words the client's.
    assert {(batch.token_ids[0], batch.token_ids[-1]) for batch in measured} == {(101, 102)}


def test_ids_arrive_as_they_were_made_and_from_every_process(tulip: str, engine: FakeEngine) -> None:
    engine.batches.clear()
    report = run("throughput", f"grpc://{tulip}", inputs=(3,), tokens=(7,), clients=(2,), requests=10)
    assert [result.figures.num_requests for result in report.results] == [10]
    assert report.results[0].figures.sequences_per_s > 0
    sequences = {tuple(s.token_ids.tolist()) for batch in engine.batches for s in batch.sequences if s.num_tokens == 7}
    # Two processes, each with 16 different requests of 3 inputs: at least the first ones of both were sent.
    assert len(sequences) >= 6 * 3
    assert all(1000 <= token < 30_522 for ids in sequences for token in ids)


def test_overload_is_counted_and_reported() -> None:
    with running_tulip(FakeEngine(step_time=STEP_TIME), max_queued_sequences=1) as address:
        report = run("concurrency", f"grpc://{address}", tokens=(4,), clients=(3,), processes=1)
    (result,) = report.results
    assert result.figures.num_failed > 0
    assert result.figures.num_requests > 0
    assert sum(result.failures.values()) == result.figures.num_failed
    assert any("requests failed" in note for note in report.notes)
    assert check_schema(as_json(report, ENVIRONMENT))["cases"][0]["num_failed"] == result.figures.num_failed


@pytest.mark.parametrize("target", ["grpc://127.0.0.1:1", "http://127.0.0.1:1", "tei+http://127.0.0.1:1"])
def test_nobody_there(target: str) -> None:
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1"):
        run("latency", target, timeout=5.0)


def models(_body: object) -> dict[str, Any]:
    return {"data": [{"id": "stub", "owned_by": "vllm", "max_model_len": 64}]}


def vectors(*rows: list[float]) -> dict[str, Any]:
    return {"data": [{"index": i, "embedding": to_base64(np.array(row, np.float32))} for i, row in enumerate(rows)]}


def test_another_server_is_asked_in_openais_way() -> None:
    bodies: list[dict[str, Any]] = []

    def embed(body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return vectors(*([1.0, 2.0] for _ in body["input"]))

    def version(_body: object) -> dict[str, str]:
        return {"version": "0.22.0"}

    with http_stub(v1_models=models, v1_embeddings=embed, version=version) as address:
        report = run("open", f"http://{address}", rate=200.0, processes=1, requests=20)
    assert (report.info.server, report.info.max_length) == ("vllm 0.22.0", 64)
    assert report.results[0].figures.num_requests == 20
    assert not any("priority" in body for body in bodies)  # it has no lanes
    assert max(len(ids) for body in bodies for ids in body["input"]) == 64
    assert any("no lanes" in note for note in report.notes)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([vectors([1.0, 0.0]), vectors([0.0, 1.0])], "1 apart in cosine"),
        ([vectors([1.0, 0.0], [1.0, 0.0])], "not as many finite vectors"),
        ([vectors([float("nan"), 0.0])], "not as many finite vectors"),
        ([500], "HTTP 500"),
        ([{"data": []}], "not a list of embeddings"),
    ],
)
def test_a_server_that_answers_wrongly_is_not_measured(answers: list[Any], says: str) -> None:
    turn = iter(answers * 2)
    with (
        http_stub(v1_models=models, v1_embeddings=lambda _body: next(turn)) as address,
        pytest.raises(ServerError, match=says),
    ):
        run("latency", f"http://{address}", tokens=(4,))


def test_teis_own_routes() -> None:
    bodies: list[dict[str, Any]] = []

    def embed(body: dict[str, Any]) -> list[list[float]]:
        bodies.append(body)
        return [[1.0, 2.0] for _ in body["inputs"]]

    with http_stub(
        info=lambda _body: {"model_id": "m", "version": "1.9", "max_input_length": 30, "max_client_batch_size": 4},
        tokenize=lambda body: [[{}] * (len(body["inputs"].split()) + 2)],
        embed=embed,
    ) as address:
        report = run("scoring", f"tei+http://{address}", inputs=(9,), input_kind="text", requests=4)
    assert report.info.server == "tei routes, version 1.9"
    assert report.results[0].figures.num_requests == 4
    assert {len(body["inputs"]) for body in bodies} == {4}
    assert {len(text.split()) for body in bodies for text in body["inputs"]} == {28}  # and two special tokens


def test_a_server_that_lists_no_models_is_asked_all_the_same() -> None:
    names: list[str] = []

    def embed(body: dict[str, Any]) -> dict[str, Any]:
        names.append(body["model"])
        return vectors([1.0, 2.0])

    with http_stub(base_embeddings=embed) as address:
        report = run("latency", f"http://{address}/base", tokens=(4,), requests=3, model_name="mine")
    assert (report.info.server, report.info.model, set(names)) == ("unknown server", "mine", {"mine"})
    assert report.results[0].figures.num_requests == 3


def test_a_model_that_is_not_served_is_said_so() -> None:
    with http_stub(v1_models=models) as address, pytest.raises(ServerError, match="serves stub, not 'other'"):
        run("latency", f"http://{address}", model_name="other")


def test_a_target_in_process_is_measured_without_a_wire() -> None:
    report = run("latency", f"engine:{MINILM}", tokens=(16,), requests=4, duration=20.0)
    (result,) = report.results
    assert result.figures.num_requests == 4
    assert result.figures.device_per_step is not None
    assert result.figures.latency is not None
    assert result.figures.device_per_step.p50 < result.figures.latency.p50
    assert (result.client.cpu_us_per_request, report.info.device, report.info.dtype) == (0, "cpu", "float32")


@pytest.mark.parametrize("kind", ["inprocess", pytest.param("st", marks=pytest.mark.slow)])
def test_texts_in_process(kind: str) -> None:
    report = run("concurrency", f"{kind}:{MINILM}", tokens=(20,), clients=(2,), requests=4, duration=20.0)
    assert report.results[0].figures.num_requests == 4
    assert report.info.max_length == 256
    assert not any("counts" in note for note in report.notes)


def test_a_setup_error_of_a_client_process_stays_one() -> None:
    with pytest.raises(SetupError, match="no-such-folder"):
        run("latency", "engine:./no-such-folder")
