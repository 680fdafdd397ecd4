"""What the CUDA engine counts of its graphs and steps."""

from pathlib import Path

from cuda_steps import vectors_of
from rose_checkpoints import make_sequence, pack, random_ids, spec_of, write_checkpoint

from rosebed.core.types import Lane
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig


def test_lazy_graphs_are_captured_on_the_way_and_counted(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    engine = load_engine(spec_of(tmp_path), EngineConfig(device="cuda", graphs="lazy", token_budget=512))
    engine.warm_up()
    for _ in range(3):
        vectors_of(engine, pack(make_sequence(random_ids(100))))
    online = engine.statistics()[Lane.ONLINE]
    assert (online.graphs, online.live_captures) == (1, 1)
    assert (online.eager_steps, online.cold_steps, online.replays) == (1, 1, 2)
    assert (online.tokens, online.padding_tokens) == (300, 3 * 28)
    assert online.capture_seconds > 0


def test_full_graphs_are_captured_before_and_no_step_of_warming_up_counts(tmp_path: Path) -> None:
    write_checkpoint("bert", tmp_path)
    engine = load_engine(spec_of(tmp_path), EngineConfig(device="cuda", token_budget=512))
    engine.warm_up()
    before = engine.statistics()[Lane.ONLINE]
    assert before.graphs >= 46
    assert before.graph_bytes > 0
    assert before.capture_seconds > 0
    assert (before.replays, before.eager_steps, before.tokens) == (0, 0, 0)
    vectors_of(engine, pack(make_sequence(random_ids(100)), make_sequence(random_ids(7))))
    after = engine.statistics()[Lane.ONLINE]
    assert (after.replays, after.eager_steps, after.live_captures) == (1, 0, 0)
    assert (after.tokens, after.padding_tokens) == (107, 21)
    assert after.graphs == before.graphs
