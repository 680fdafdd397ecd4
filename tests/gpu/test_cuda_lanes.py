"""Two lanes in flight at once: each vector as if it were alone, online steps before bulk ones, figures by lane."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cuda_steps import least_cosine, vectors_of
from rose_checkpoints import make_sequence, pack, random_ids, rewrite_json, spec_of, write_checkpoint

from rosebed.core.types import Batch, Float32Array, Lane, OutputKind, Sequence
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig
from rosebed.rose.cuda.engine import CudaEngine
from rosebed.rose.cuda.history import History, HistoryKey
from rosebed.rose.cuda.keys import GraphKey, bulk_ladder, ladder

LONG = 8192
ROUNDS = 20


def load_cuda(folder: Path, config: EngineConfig) -> CudaEngine:
    engine = load_engine(spec_of(folder), config)
    assert isinstance(engine, CudaEngine)
    return engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pplx")
    write_checkpoint("pplx", folder)
    rewrite_json(folder / "config.json", {"max_position_embeddings": LONG})
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> CudaEngine:
    engine = load_cuda(folder, EngineConfig(device="cuda", token_budget=LONG))
    engine.warm_up()
    return engine


def in_bulk(*sequences: Sequence) -> Batch:
    return Batch.pack(sequences, lane=Lane.BULK)


def online_batch(seed: int) -> Batch:
    return pack(*(make_sequence(random_ids(n, seed=seed)) for n in (30, 41, 7)))


def bulk_batch(seed: int) -> Batch:
    return in_bulk(*(make_sequence(random_ids(n, seed=seed)) for n in (300, 500, 120)))


def test_every_graph_of_both_lanes_is_captured_first(engine: CudaEngine) -> None:
    statistics = engine.statistics()
    assert set(statistics) == set(Lane)
    assert statistics[Lane.BULK].graphs >= len(bulk_ladder(ladder(LONG)))
    assert statistics[Lane.ONLINE].graphs >= len(ladder(LONG))
    assert sum(slot.graphs for slot in statistics.values()) <= 128
    assert statistics[Lane.BULK].capture_seconds < statistics[Lane.ONLINE].capture_seconds


def test_steps_of_two_lanes_at_once_do_not_mix(engine: CudaEngine, folder: Path) -> None:
    eager = load_cuda(folder, EngineConfig(device="cuda", graphs="off", token_budget=LONG))
    wanted: dict[Lane, list[Float32Array]] = {
        Lane.ONLINE: [vectors_of(eager, online_batch(seed)) for seed in range(ROUNDS)],
        Lane.BULK: [vectors_of(eager, bulk_batch(seed)) for seed in range(ROUNDS)],
    }
    before = engine.statistics()
    makers: dict[Lane, Callable[[int], Batch]] = {Lane.BULK: bulk_batch, Lane.ONLINE: online_batch}
    for at in range(0, ROUNDS, 2):  # two of each lane in flight
        pending = [(lane, seed, engine.step(make(seed))) for seed in (at, at + 1) for lane, make in makers.items()]
        for lane, seed, lazy in pending:
            assert least_cosine(lazy.result().output(OutputKind.DENSE), wanted[lane][seed]) > 0.9999, (lane, seed)
            lazy.release()
    after = engine.statistics()
    for lane in Lane:
        assert after[lane].replays - before[lane].replays == ROUNDS
        assert (after[lane].eager_steps, after[lane].cold_steps, after[lane].live_captures) == (0, 0, 0)
    assert after[Lane.ONLINE].padding_tokens - before[Lane.ONLINE].padding_tokens == ROUNDS * (128 - 78)
    assert after[Lane.BULK].padding_tokens - before[Lane.BULK].padding_tokens == ROUNDS * (1024 - 920)


def test_eager_steps_of_two_lanes_at_once_do_not_mix(folder: Path) -> None:
    engine = load_cuda(folder, EngineConfig(device="cuda", graphs="off", token_budget=LONG))
    alone = [vectors_of(engine, make(0)) for make in (bulk_batch, online_batch)]
    for _ in range(3):
        pending = [engine.step(make(0)) for make in (bulk_batch, online_batch)]
        for lazy, wanted in zip(pending, alone, strict=True):
            np.testing.assert_array_equal(lazy.result().output(OutputKind.DENSE), wanted)
            lazy.release()


def test_an_online_step_behind_long_bulk_ones_ends_first(engine: CudaEngine) -> None:
    long, short = in_bulk(make_sequence(random_ids(LONG))), online_batch(0)
    for batch in (long, short):
        vectors_of(engine, batch)
    ended_first = 0
    for _ in range(5):
        steps = [engine.step(long), engine.step(long), engine.step(short)]
        steps[2].result()
        ended_first += not steps[1].ready()
        steps[1].result()
        for lazy in steps:
            lazy.release()
    assert ended_first >= 4


def test_a_bulk_step_begins_after_the_online_ones_before_it(engine: CudaEngine) -> None:
    online, bulk = engine.step(pack(make_sequence(random_ids(LONG)))), engine.step(bulk_batch(0))
    bulk.result()
    assert online.ready()
    for lazy in (online, bulk):
        lazy.release()


def test_without_a_bulk_slot_both_lanes_share_one(folder: Path) -> None:
    shared = load_cuda(folder, EngineConfig(device="cuda", graphs="lazy", token_budget=LONG, bulk_slot=False))
    assert not shared.separate_lanes
    for batch in (bulk_batch(0), online_batch(0)):
        vectors_of(shared, batch)
    assert set(shared.statistics()) == {Lane.ONLINE}
    assert shared.statistics()[Lane.ONLINE].eager_steps == 2


def test_frequent_sizes_get_graphs_in_idle_moments_that_replay_as_eager(folder: Path, tmp_path: Path) -> None:
    key = HistoryKey(chip="any", fingerprint="pplx", dtype="bfloat16", rosebed="1", torch="2", triton="3")
    history = History(key, tmp_path)
    history.write({GraphKey(1088, "triton"): 4000, GraphKey(192, "triton", slot=Lane.BULK): 8000})
    engine = load_cuda(folder, EngineConfig(device="cuda", token_budget=LONG))
    engine._history = history  # pyright: ignore[reportPrivateUsage]
    engine.warm_up()
    before = engine.statistics()
    times = list[float]()
    while True:
        started = time.perf_counter()
        if not engine.idle():
            break
        times.append(time.perf_counter() - started)
    assert len(times) == 4
    assert max(times) < 0.25
    eager = load_cuda(folder, EngineConfig(device="cuda", graphs="off", token_budget=LONG))
    online = pack(*(make_sequence(random_ids(n, seed=n)) for n in (500, 300, 250)))
    bulk = in_bulk(*(make_sequence(random_ids(n, seed=n)) for n in (100, 90)))
    for batch, lane, padding in ((online, Lane.ONLINE, 38), (bulk, Lane.BULK, 2)):
        assert least_cosine(vectors_of(engine, batch), vectors_of(eager, batch)) > 0.9999
        after = engine.statistics()[lane]
        assert (after.graphs - before[lane].graphs, after.idle_captures, after.live_captures) == (1, 1, 0)
        assert (after.replays, after.eager_steps, after.padding_tokens) == (1, 0, padding)
    for batch in (online_batch(0), bulk_batch(0)):
        assert least_cosine(vectors_of(engine, batch), vectors_of(eager, batch)) > 0.9999
    engine.close()
    assert history.read()[GraphKey(1088, "triton")] == 2001
