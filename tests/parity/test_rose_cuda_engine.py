"""What the CUDA engine does around its kernels: slots, graphs, keys, figures. On the CPU, by stand-ins."""

from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import cuda_engine, stand_in
from rose_checkpoints import load, make_sequence, pack, random_ids, write_checkpoint

from rosebed.core.engine import Engine
from rosebed.core.errors import ConfigError
from rosebed.core.types import Batch, Float32Array, Lane, OutputKind
from rosebed.rose.config import EngineConfig, GraphPolicy
from rosebed.rose.cuda.engine import CudaEngine
from rosebed.rose.cuda.history import History, HistoryKey
from rosebed.rose.cuda.keys import GraphKey, bulk_ladder, ladder

RUNGS = ladder(512)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(monkeypatch)
    write_checkpoint("bert", tmp_path)
    return tmp_path


def config(graphs: GraphPolicy = "full", *, bulk_slot: bool = True, graph_memory_mb: int | None = None) -> EngineConfig:
    return EngineConfig(
        device="cuda", graphs=graphs, token_budget=512, bulk_slot=bulk_slot, graph_memory_mb=graph_memory_mb
    )


def vectors(engine: Engine, batch: Batch) -> Float32Array:
    lazy = engine.step(batch)
    try:
        assert not lazy.result().status.any()
        return lazy.result().output(OutputKind.DENSE).copy()
    finally:
        lazy.release()


def batches() -> list[Batch]:
    return [
        Batch.pack([make_sequence(random_ids(n, seed=n)) for n in lengths], lane=lane)
        for lane in Lane
        for lengths in [(5,), (100, 40), (150, 150, 100), (64,), (1,) * 70]
    ]


@pytest.mark.parametrize("graphs", ["full", "lazy", "off"])
@pytest.mark.parametrize("bulk_slot", [True, False])
def test_vectors_are_the_cpu_engines(folder: Path, graphs: GraphPolicy, bulk_slot: bool) -> None:
    reference, engine = load(folder), cuda_engine(folder, config(graphs, bulk_slot=bulk_slot))
    engine.warm_up()
    for _ in range(3):
        for batch in batches():
            np.testing.assert_allclose(vectors(engine, batch), vectors(reference, batch), atol=1e-5)
    engine.close()


def test_full_captures_both_lanes_and_counts_live_steps_alone(folder: Path) -> None:
    engine = cuda_engine(folder, config())
    engine.warm_up()
    before = engine.statistics()
    assert (before[Lane.ONLINE].graphs, before[Lane.BULK].graphs) == (len(RUNGS), len(bulk_ladder(RUNGS)))
    assert (before[Lane.ONLINE].replays, before[Lane.BULK].replays) == (0, 0)
    for batch in batches():
        vectors(engine, batch)
    after = engine.statistics()
    for lane, padding in ((Lane.ONLINE, (11, 52, 48, 0, 250)), (Lane.BULK, (11, 116, 112, 0, 442))):
        figures = after[lane]
        assert (figures.replays, figures.eager_steps, figures.live_captures) == (5, 0, 0)
        assert figures.tokens == 5 + 140 + 400 + 64 + 70
        assert figures.padding_tokens == sum(padding)


def test_lazy_captures_at_the_second_use(folder: Path) -> None:
    engine = cuda_engine(folder, config("lazy"))
    for _ in range(3):
        vectors(engine, pack(make_sequence(random_ids(100))))
    figures = engine.statistics()[Lane.ONLINE]
    assert (figures.eager_steps, figures.cold_steps, figures.live_captures, figures.replays) == (1, 1, 1, 2)
    assert (figures.graphs, figures.padding_tokens) == (1, 3 * 28)


def _waits(engine: CudaEngine, lane: Lane) -> int:
    return len(engine.slots[lane]._queue.waits)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def test_a_bulk_step_waits_for_online_ones_in_flight_and_these_for_nobody(folder: Path) -> None:
    engine = cuda_engine(folder, config("off"))
    batch = [make_sequence(random_ids(9))]
    steps = [engine.step(Batch.pack(batch, lane=lane)) for lane in (Lane.ONLINE, Lane.BULK, Lane.ONLINE)]
    assert (_waits(engine, Lane.ONLINE), _waits(engine, Lane.BULK)) == (0, 1)
    for step in steps:
        step.release()
    engine.step(Batch.pack(batch, lane=Lane.BULK))
    assert _waits(engine, Lane.BULK) == 1
    priorities = {lane: slot.stream.priority for lane, slot in engine.slots.items()}
    assert priorities[Lane.ONLINE] < priorities[Lane.BULK]


def test_a_bound_holds_for_both_lanes_together(folder: Path) -> None:
    engine = cuda_engine(folder, config(graph_memory_mb=14))
    engine.warm_up()
    figures = engine.statistics()
    # Those that halve each other come first, six and six, then the largest between.
    assert (figures[Lane.ONLINE].graphs, figures[Lane.BULK].graphs) == (8, 6)
    vectors(engine, pack(make_sequence(random_ids(130))))
    assert engine.statistics()[Lane.ONLINE].padding_tokens == 256 - 130
    with pytest.raises(ConfigError, match="3 of the 6 graphs"):
        cuda_engine(folder, config(graph_memory_mb=3)).warm_up()


def test_what_the_bound_leaves_no_graph_for_runs_kernel_by_kernel(folder: Path) -> None:
    engine = cuda_engine(folder, config(graph_memory_mb=6))
    engine.warm_up()
    vectors(engine, batches()[-1])
    figures = engine.statistics()[Lane.BULK]
    assert (figures.graphs, figures.eager_steps, figures.cold_steps) == (0, 1, 1)


HISTORY_KEY = HistoryKey(chip="none", fingerprint="bert", dtype="float32", rosebed="1", torch="2", triton="3")
FREQUENT = GraphKey(192, "triton", slot=Lane.BULK)


def test_idle_moments_add_graphs_for_sizes_that_were_frequent(folder: Path) -> None:
    history = History(HISTORY_KEY, folder / "history")
    history.write({FREQUENT: 1000, GraphKey(192, "triton"): 1000, GraphKey(192, "gone", slot=Lane.BULK): 1000})
    reference, engine = load(folder), cuda_engine(folder, config(), history)
    assert not engine.idle()  # not before it has warmed up
    engine.warm_up()
    batch = Batch.pack([make_sequence(random_ids(n, seed=n)) for n in (100, 90)], lane=Lane.BULK)
    before = vectors(engine, batch)
    assert engine.statistics()[Lane.BULK].padding_tokens == 66
    assert [engine.idle() for _ in range(3)] == [True, True, False]
    after = vectors(engine, batch)
    figures = engine.statistics()[Lane.BULK]
    assert figures.padding_tokens == 66 + 2
    assert (figures.idle_captures, figures.live_captures, figures.replays) == (1, 0, 2)
    assert figures.graphs == len(bulk_ladder(RUNGS)) + 1
    np.testing.assert_allclose(after, vectors(reference, batch), atol=1e-5)
    np.testing.assert_allclose(after, before, atol=1e-5)
    for batch in batches():
        np.testing.assert_allclose(vectors(engine, batch), vectors(reference, batch), atol=1e-5)
    engine.close()
    assert history.read()[FREQUENT] == 500 + 3


@pytest.mark.parametrize("graphs", ["lazy", "off"])
def test_only_full_graphs_are_refined_and_counted(folder: Path, graphs: GraphPolicy) -> None:
    history = History(HISTORY_KEY, folder / "history")
    engine = cuda_engine(folder, config(graphs), history)
    engine.warm_up()
    vectors(engine, batches()[0])
    assert not engine.idle()
    engine.close()
    assert not history.path.exists()
