"""What each scenario asks for: the published shapes, fitted to the target, shared out among processes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from rosebed.bench.case import Case, poisson_arrivals_ns
from rosebed.bench.config import SCENARIOS, BenchConfig
from rosebed.bench.lengths import MIXED, read_trace, request_shapes
from rosebed.bench.requests import RequestMaker, RequestShape, TokenCount
from rosebed.bench.scenarios import Planner
from rosebed.bench.targets.base import TargetInfo
from rosebed.bench.words import WORDS
from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane

ANYTHING = TargetInfo(server="s", model="m", takes_ids=True, takes_text=True, has_lanes=True)


def plan(scenario: str, info: TargetInfo = ANYTHING, **settings: Any) -> tuple[list[Case], list[str]]:
    given: dict[str, Any] = {"target": "http://host:1", **settings}
    planner = Planner(BenchConfig(**given), info)
    return planner.cases(scenario), planner.notes


def shapes(cases: list[Case]) -> list[tuple[int, int]]:
    """(inputs, tokens of each) of each case."""
    return [(len(case.shapes[0].lengths), case.shapes[0].lengths[0]) for case in cases]


def test_the_published_latency() -> None:
    cases, notes = plan("latency")
    assert shapes(cases) == [(1, 128), (1, 512), (1, 4096)]
    assert {(case.as_text, case.clients, case.processes, case.rate) for case in cases} == {(False, 1, 1, None)}
    assert notes == []


def test_the_published_scoring() -> None:
    cases, _ = plan("scoring")
    assert shapes(cases) == [(5, 512), (25, 512), (50, 512)]
    assert {(case.as_text, case.clients, case.processes) for case in cases} == {(False, 1, 1)}


def test_the_published_throughput() -> None:
    cases, _ = plan("throughput")
    assert shapes(cases) == [(100, 512), (100, 1024), (100, 4096)]
    assert {(case.as_text, case.clients, case.processes) for case in cases} == {(False, 4, 4)}


def test_the_published_concurrency() -> None:
    cases, _ = plan("concurrency")
    assert shapes(cases) == [(1, 512)] * 6
    assert [case.clients for case in cases] == [1, 2, 4, 8, 16, 64]
    assert [case.processes for case in cases] == [1, 2, 4, 4, 4, 4]
    assert all(case.as_text for case in cases)


def test_the_open_scenario_sends_the_trace_in_two_lanes() -> None:
    (case,), notes = plan("open", rate=30.0)
    assert (case.rate, case.as_text) == (30.0, False)
    assert case.shapes == read_trace(MIXED)
    assert {shape.lane for shape in case.shapes} == {Lane.ONLINE, Lane.BULK}
    assert notes == []


def test_a_sweep_has_no_cases_of_its_own() -> None:
    assert plan("sweep") == ([], [])
    assert set(SCENARIOS) == {"latency", "scoring", "throughput", "concurrency", "open", "sweep"}


def test_everything_can_be_set() -> None:
    cases, _ = plan(
        "throughput", tokens=(7, 9), inputs=(3,), clients=(2, 6), processes=3, duration=0.5, requests=11, seed=4
    )
    assert shapes(cases) == [(3, 7), (3, 7), (3, 9), (3, 9)]
    assert [(case.clients, case.processes) for case in cases] == [(2, 2), (6, 3)] * 2
    assert {(case.duration_s, case.max_requests, case.seed) for case in cases} == {(0.5, 11, 4)}


def test_lengths_beyond_the_target_are_measured_at_its_limit_once() -> None:
    cases, notes = plan("latency", replace(ANYTHING, max_length=256))
    assert shapes(cases) == [(1, 128), (1, 256)]
    assert notes == ["the target takes inputs of 256 tokens: longer ones were measured at that length"]


def test_requests_beyond_the_target_are_measured_with_as_many_inputs_as_it_takes() -> None:
    cases, notes = plan("scoring", replace(ANYTHING, max_inputs=32))
    assert shapes(cases) == [(5, 512), (25, 512), (32, 512)]
    assert notes == ["the target takes 32 inputs a request: larger requests were measured with so many"]


def test_the_kind_of_input_follows_what_the_target_takes() -> None:
    cases, notes = plan("concurrency", replace(ANYTHING, takes_text=False))
    assert not any(case.as_text for case in cases)
    assert notes == ["the target takes token ids only: tokenization is not part of these figures"]
    cases, notes = plan("latency", replace(ANYTHING, takes_ids=False))
    assert all(case.as_text for case in cases)
    assert notes == ["the target takes text only: tokenization is part of these figures"]
    assert plan("latency", input_kind="text")[0][0].as_text
    assert not plan("concurrency", input_kind="ids")[0][0].as_text
    with pytest.raises(ConfigError, match="--input-kind text: s does not take that"):
        plan("latency", replace(ANYTHING, takes_text=False), input_kind="text")


def test_without_lanes_bulk_is_said_to_be_sent_like_the_rest() -> None:
    assert plan("open", replace(ANYTHING, has_lanes=False))[1] == [
        "the target has no lanes: bulk requests were sent like the others"
    ]


def test_a_model_in_process_is_loaded_once() -> None:
    cases, _ = plan("throughput", target="engine:folder", processes=4)
    assert {case.processes for case in cases} == {1}


@for_all(processes=st.integers(1, 9), clients=st.integers(1, 70), requests=st.integers(1, 50))
def test_the_shares_of_all_processes_are_the_whole(processes: int, clients: int, requests: int) -> None:
    case = Case(
        label="", shapes=(RequestShape((1,)),), as_text=False, processes=processes, clients=clients, duration_s=1,
        warmup_s=0, max_requests=requests,
    )  # fmt: skip
    assert sum(case.own_clients(i) for i in range(processes)) == clients
    assert sum(case.own_max_requests(i) or 0 for i in range(processes)) == requests


def open_case(processes: int, rate: float, seed: int = 0) -> Case:
    shapes = tuple(RequestShape((length,)) for length in range(1, 13))
    return Case(
        label="", shapes=shapes, as_text=False, processes=processes, rate=rate, duration_s=20, warmup_s=0, seed=seed
    )


@for_all(processes=st.integers(1, 5), seed=st.integers(0, 9))
def test_arrivals_do_not_depend_on_the_number_of_processes(processes: int, seed: int) -> None:
    case = open_case(processes, 50, seed)
    merged = np.sort(np.concatenate([case.own_arrivals_ns(i) for i in range(processes)]))
    np.testing.assert_array_equal(merged, poisson_arrivals_ns(open_case(1, 50, seed)))


def test_arrivals_are_poisson() -> None:
    arrivals = poisson_arrivals_ns(open_case(1, 500))
    gaps = np.diff(arrivals) / 1e9
    assert arrivals[-1] < 20e9
    assert len(arrivals) == pytest.approx(10_000, rel=0.05)
    assert gaps.mean() == pytest.approx(1 / 500, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # exponential
    assert len(poisson_arrivals_ns(replace(open_case(1, 500), max_requests=7))) == 7


def test_an_open_loops_requests_are_dealt_out() -> None:
    case = open_case(3, 1)
    assert [shape.num_tokens for shape in case.own_shapes(1)] == [2, 5, 8, 11]
    assert sorted(s.num_tokens for i in range(3) for s in case.own_shapes(i)) == list(range(1, 13))


@pytest.mark.parametrize(("tokens", "distinct"), [(128, 16), (51_200, 9), (409_600, 1), (10_000_000, 1)])
def test_few_different_requests_are_made_of_large_ones(tokens: int, distinct: int) -> None:
    case = Case(label="", shapes=(RequestShape((tokens,)),), as_text=False, duration_s=1, warmup_s=0)
    assert len(case.own_shapes(0)) == distinct


def test_ids_follow_the_seed_and_stay_in_range() -> None:
    shape = RequestShape((500, 300))
    first, again = (RequestMaker(seed=[1], vocab_size=5000).of_ids(shape) for _ in range(2))
    other = RequestMaker(seed=[2], vocab_size=5000).of_ids(shape)
    assert [len(ids) for ids in first.token_ids] == [500, 300]
    np.testing.assert_array_equal(first.token_ids[1], again.token_ids[1])
    assert (first.token_ids[0] != other.token_ids[0]).any()
    assert min(ids.min() for ids in first.token_ids) >= 1000
    assert 4900 < max(ids.max() for ids in first.token_ids) < 5000
    assert RequestMaker(seed=[1], vocab_size=58).of_ids(shape).token_ids[0].max() < 58


def test_texts_have_as_many_words_as_give_the_tokens() -> None:
    count = TokenCount.of_counts({4: 6, 8: 10})
    assert count == TokenCount(special=2, per_word=1)
    request = RequestMaker(seed=[1], vocab_size=None, count=count).of_text(RequestShape((10, 1)))
    assert [len(text.split()) for text in request.texts] == [8, 1]
    assert {word for text in request.texts for word in text.split()} <= set(WORDS)
    assert len(WORDS) == len(set(WORDS)) > 200


@pytest.mark.parametrize(
    ("counts", "num_tokens", "words"),
    [
        ({4: 4, 8: 8}, 512, 512),
        ({8: 44, 4: 24}, 104, 20),  # characters, say: five a word, and four
        ({4: 7, 8: 7}, 30, 30),  # not counted at all
        ({4: 6, 8: 10}, 1, 1),
    ],
)
def test_words_follow_what_the_target_counts(counts: dict[int, int], num_tokens: int, words: int) -> None:
    assert TokenCount.of_counts(counts).words_of(num_tokens) == words


@pytest.mark.parametrize(
    ("lengths", "low", "high", "median"),
    [("fixed:33", 33, 33, 33), ("uniform:10:20", 10, 20, 15), ("lognormal:100:0.5", 10, 1000, 100)],
)
def test_distributions(lengths: str, low: int, high: int, median: int) -> None:
    drawn = [shape.num_tokens for shape in request_shapes(lengths, seed=3)]
    assert drawn == [shape.num_tokens for shape in request_shapes(lengths, seed=3)]
    assert low <= min(drawn) <= max(drawn) <= high
    assert np.median(drawn) == pytest.approx(median, rel=0.1)


def test_the_trace_that_ships_is_what_its_description_says() -> None:
    trace = read_trace(MIXED)
    online = [shape for shape in trace if shape.lane is Lane.ONLINE]
    queries = [shape for shape in online if len(shape.lengths) == 1]
    assert (len(trace), len(online), len(queries)) == (1000, 878, 724)
    assert sum(shape.num_tokens for shape in trace) == 1_142_563
    assert np.median([shape.num_tokens for shape in queries]) == 14


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "not a trace"),
        ("nonsense", "not a trace"),
        ('{"requests": [["online", []]]}', "numbers above 0"),
        ('{"requests": [["express", [3]]]}', "express"),
        ('{"requests": [["online", [0]]]}', "numbers above 0"),
        ('{"requests": []}', "no requests"),
    ],
)
def test_a_bad_trace_is_refused_naming_the_flag(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"--lengths .*{says}"):
        request_shapes(str(path), seed=0)


def test_a_trace_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"requests": [["online", [3, 4]], ["bulk", [5]]]}))
    assert request_shapes(str(path), seed=0) == (RequestShape((3, 4)), RequestShape((5,), Lane.BULK))


@pytest.mark.parametrize("lengths", ["fixed", "fixed:a", "uniform:1", "lognormal:5", "no such file"])
def test_a_bad_distribution_is_refused_naming_the_flag(lengths: str) -> None:
    with pytest.raises(ConfigError, match="--lengths"):
        request_shapes(lengths, seed=0)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"tokens": (128, 0)}, "--tokens"), ({"inputs": (0,)}, "--inputs"), ({"clients": (0,)}, "--clients"),
        ({"processes": 0}, "--processes"), ({"processes": 1000}, "--processes"), ({"requests": 0}, "--requests"),
        ({"rate": 0}, "--rate"), ({"duration": -1}, "--duration"), ({"p99_bound_ms": 0}, "--p99-bound-ms"),
        ({"timeout": 0}, "--timeout"), ({"warmup": -1}, "--warmup"), ({"vocab_size": 0}, "--vocab-size"),
        ({"duration": float("nan")}, "--duration"),
    ],
)  # fmt: skip
def test_a_bad_setting_is_refused_naming_its_flag(settings: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        BenchConfig(target="http://host:1", **settings)
