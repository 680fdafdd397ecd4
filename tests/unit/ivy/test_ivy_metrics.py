"""Numbers that several workers write and any of them reads."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rosebed.ivy.exposition import exposition
from rosebed.ivy.metrics import Metrics
from rosebed.ivy.worker_rows import WorkerRows


def test_workers_have_rows_of_their_own_and_one_sum(tmp_path: Path) -> None:
    first, second = WorkerRows(3, tmp_path), WorkerRows(3, tmp_path)
    first.own[0] += 1
    second.own[0] += 2
    second.own[2] += 0.5
    assert first.total().tolist() == second.total().tolist() == [3, 0, 0.5]


def test_row_of_a_dead_worker_is_taken_over(tmp_path: Path) -> None:
    survivor = WorkerRows(1, tmp_path)
    child = os.fork()
    if child == 0:  # a worker that counts to five and dies
        WorkerRows(1, tmp_path).own[0] += 5
        os._exit(0)
    os.waitpid(child, 0)
    assert survivor.total().tolist() == [5]
    successor = WorkerRows(1, tmp_path)
    successor.own[0] += 1
    assert survivor.total().tolist() == [6]
    assert len(list(tmp_path.iterdir())) == 2


def test_private_rows_are_private() -> None:
    first, second = WorkerRows(1), WorkerRows(1)
    first.own[0] += 1
    assert (first.total().tolist(), second.total().tolist()) == ([1], [0])


def balancer(ready: dict[str, int]) -> Any:
    """One with so many connections to each address, and ten times as many tokens outstanding."""
    addresses = [SimpleNamespace(num_ready=number, outstanding_tokens=10 * number) for number in ready.values()]
    return SimpleNamespace(addresses=addresses)


def test_what_prometheus_reads(tmp_path: Path) -> None:
    workers = [Metrics([("a:1", "b:1"), ("a:1",)], tmp_path) for _ in range(2)]
    for number, metrics in enumerate(workers):
        route, _ = metrics.route("/v1/embeddings"), metrics.route("/health")
        for status, seconds in ((200, 0.0015), (200, 0.3), (429, 100.0)):
            route.began()
            route.finished(status, seconds)
        for _ in range(3):
            route.began()
        metrics.count(0, "tokens", 10 + number)
        metrics.count(1, "tokens", 1)
        metrics.sample([balancer({"a:1": 1, "b:1": 0}), balancer({"a:1": 5})])
    text = exposition(workers[0].total(), ["first", "second"]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    requests = {sample.labels["status"]: sample.value for sample in families["rosebed_ivy_requests"].samples}
    assert requests == {"200": 4, "429": 2}
    seconds = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
        for sample in families["rosebed_ivy_request_seconds"].samples
        if sample.labels["route"] == "/v1/embeddings"
    }
    assert (seconds["bucket", "0.001"], seconds["bucket", "0.002"]) == (0, 2)
    assert (seconds["bucket", "0.2"], seconds["bucket", "0.5"]) == (2, 4)
    assert (seconds["bucket", "30.0"], seconds["bucket", "+Inf"], seconds["count", None]) == (4, 6, 6)
    assert seconds["sum", None] == pytest.approx(200.603)
    tokens = {sample.labels["model"]: sample.value for sample in families["rosebed_ivy_tokens"].samples}
    assert tokens == {"first": 21, "second": 2}
    assert families["rosebed_ivy_requests_in_flight"].samples[0].value == 6
    for name, factor in (("replica_connections", 2), ("replica_outstanding_tokens", 20)):
        found = {
            (sample.labels["model"], sample.labels["replica"]): sample.value
            for sample in families[f"rosebed_ivy_{name}"].samples
        }
        expected = {("first", "a:1"): 1, ("first", "b:1"): 0, ("second", "a:1"): 5}
        assert found == {place: factor * number for place, number in expected.items()}
