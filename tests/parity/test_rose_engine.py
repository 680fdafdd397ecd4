"""The CPU engine's promises: what a step returns, when, and what it leaves for the next."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rose_checkpoints import load, make_sequence, pack, random_ids, reference_hidden_states, write_checkpoint

from rosebed.core.engine import Completion, Engine, LazyTensor
from rosebed.core.errors import ConfigError, StepFailed
from rosebed.core.outputs import OutputSpec, RowsPer, StepResult
from rosebed.core.types import Batch, OutputKind, Sequence, whole_span
from rosebed.rose import cpu_engine
from rosebed.rose.config import EngineConfig
from rosebed.rose.cpu_engine import CpuEngine
from rosebed.rose.eager import StepRunner
from rosebed.rose.openvino.runner import OpenVinoRunner

DIM = 64


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("bert")
    return write_checkpoint("bert", folder), folder


@pytest.fixture(params=["torch", "openvino"])
def engine(request: pytest.FixtureRequest, checkpoint: tuple[Any, Path]) -> CpuEngine:
    return load(checkpoint[1], config=EngineConfig(device="cpu", num_threads=1, cpu_backend=request.param))


def test_info(engine: CpuEngine, checkpoint: tuple[Any, Path]) -> None:
    info = engine.info
    as_engine: Engine = engine  # pyright holds it to the protocol
    assert as_engine.completion is Completion.CALLBACK
    assert (info.architecture, info.dtype, info.device) == ("BertModel", "float32", "cpu")
    assert (info.vocab_size, info.type_vocab_size, info.max_length) == (300, 2, 150)
    assert info.outputs == {OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=DIM)}
    assert (info.normalize, info.max_in_flight, info.model) == (False, 2, str(checkpoint[1]))


def test_spans_dimensions_and_normalize_are_per_sequence(engine: CpuEngine, checkpoint: tuple[Any, Path]) -> None:
    spans = np.array([[0, 4], [2, 9], [9, 10]], np.int32)
    sequences = (
        make_sequence(random_ids(10), pool_spans=spans, dimensions=16, normalize=True),
        make_sequence(random_ids(70, seed=1)),
        make_sequence(random_ids(5, seed=2), normalize=True),
    )
    lazy = engine.step(pack(*sequences))
    result = lazy.result()
    states = [reference_hidden_states("bert", checkpoint[0], sequence).numpy() for sequence in sequences]
    chunks = np.stack([states[0][start:end].mean(0)[:16] for start, end in spans])
    chunks /= np.linalg.norm(chunks, axis=1, keepdims=True)
    np.testing.assert_allclose(result.rows(OutputKind.DENSE, 0)[:, :16], chunks, atol=1e-5)
    assert (result.rows(OutputKind.DENSE, 0)[:, 16:] == 0).all()
    np.testing.assert_allclose(result.rows(OutputKind.DENSE, 1)[0], states[1].mean(0), atol=1e-5)
    unit = states[2].mean(0) / np.linalg.norm(states[2].mean(0))
    np.testing.assert_allclose(result.rows(OutputKind.DENSE, 2)[0], unit, atol=1e-5)
    assert result.device_ns > 0
    lazy.release()


def test_a_zero_vector_stays_zero_when_normalised() -> None:
    from rosebed.rose.ops.reference import finalize_dense

    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0], [torch.inf, 1.0], [3e30, 1.0]])
    rows, finite = finalize_dense(vectors, torch.full((4,), 2, dtype=torch.int32), torch.ones(4, dtype=torch.bool))
    assert rows[:2].tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]
    assert finite.tolist() == [True, True, False, False]


def test_a_failed_step_says_why_and_leaves_the_next_unharmed(engine: CpuEngine) -> None:
    good = pack(make_sequence(random_ids(9)))
    lazy = engine.step(good)
    expected = lazy.result().output(OutputKind.DENSE).copy()
    lazy.release()
    bad = engine.step(pack(make_sequence(np.array([5, 10_000], np.int32))))
    after = engine.step(good)
    with pytest.raises(StepFailed, match="index out of range"):
        bad.result()
    assert bad.ready()
    np.testing.assert_array_equal(after.result().output(OutputKind.DENSE), expected)
    bad.release()
    after.release()


def test_callbacks_come_in_order_from_another_thread(engine: CpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, both_done = threading.Event(), threading.Event()
    run = StepRunner.run

    def run_behind_the_gate(self: StepRunner, batch: Batch, result: StepResult) -> None:
        assert gate.wait(10)
        run(self, batch, result)

    monkeypatch.setattr(StepRunner, "run", run_behind_the_gate)
    monkeypatch.delattr(OpenVinoRunner, "run")
    seen: list[tuple[str, int]] = []
    lazies: list[LazyTensor] = [engine.step(pack(make_sequence(random_ids(9)))) for _ in range(2)]
    for name, lazy in zip(("first", "second"), lazies, strict=True):
        lazy.add_done_callback(lambda name=name: seen.append((name, threading.get_ident())))
    lazies[1].add_done_callback(both_done.set)
    assert not any(lazy.ready() for lazy in lazies)
    gate.set()
    assert both_done.wait(10)
    assert [name for name, _ in seen] == ["first", "second"]
    assert threading.get_ident() not in {thread for _, thread in seen}
    assert all(lazy.ready() for lazy in lazies)
    lazies[0].add_done_callback(lambda: seen.append(("late", threading.get_ident())))
    assert seen[-1] == ("late", threading.get_ident())


def test_short_steps_run_where_they_are_asked_for(
    checkpoint: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    gate = threading.Event()
    run = StepRunner.run

    def note(self: StepRunner, batch: Batch, result: StepResult) -> None:
        threads.append(threading.current_thread().name.partition("_")[0])
        assert batch.num_tokens < 100 or gate.wait(10)
        run(self, batch, result)

    monkeypatch.setattr(OpenVinoRunner, "run", note)
    monkeypatch.setattr(cpu_engine, "INLINE_NS", 10**12)  # however busy the machine is
    short = pack(make_sequence(random_ids(9)))
    engine = load(checkpoint[1], config=EngineConfig(device="cpu", num_threads=1, cpu_backend="openvino"))
    first = engine.step(short)
    expected = first.result().output(OutputKind.DENSE).copy()
    first.release()
    second = engine.step(short)
    assert second.ready()
    np.testing.assert_array_equal(second.result().output(OutputKind.DENSE), expected)
    second.release()
    long, behind = engine.step(pack(make_sequence(random_ids(120)))), engine.step(short)
    assert not behind.ready()  # it does not overtake, and nobody waits for it here
    gate.set()
    np.testing.assert_array_equal(behind.result().output(OutputKind.DENSE), expected)
    assert long.ready()
    own = threading.current_thread().name.partition("_")[0]
    assert threads == ["rose-step", own, "rose-step", "rose-step"]


def test_two_results_may_be_held_and_no_more(engine: CpuEngine) -> None:
    batch = pack(make_sequence(random_ids(5)))
    first, second = engine.step(batch), engine.step(batch)
    with pytest.raises(RuntimeError, match="release one first"):
        engine.step(batch)
    first.result()
    first.release()
    first.release()  # gives back once
    third = engine.step(batch)
    with pytest.raises(RuntimeError, match="release one first"):
        engine.step(batch)
    np.testing.assert_array_equal(second.result().output(OutputKind.DENSE), third.result().output(OutputKind.DENSE))


def test_a_result_stays_as_it_was_while_the_next_step_runs(engine: CpuEngine) -> None:
    first = engine.step(pack(make_sequence(random_ids(5))))
    before = first.result().output(OutputKind.DENSE).copy()
    engine.step(pack(make_sequence(random_ids(50, seed=1)))).result()
    np.testing.assert_array_equal(first.result().output(OutputKind.DENSE), before)


def test_warm_up_leaves_both_buffers_free_and_close_waits(engine: CpuEngine) -> None:
    engine.warm_up()
    lazies = [engine.step(pack(make_sequence(random_ids(120)))) for _ in range(2)]
    engine.close()
    assert all(lazy.ready() for lazy in lazies)


@pytest.mark.parametrize(("warm_up_s", "longest_idle_s", "expected"), [(0, 60, [1, 2, 3]), (0, 0, [1]), (60, 60, [])])
def test_kernels_of_short_sequences_are_made_ahead_of_need(
    checkpoint: tuple[Any, Path],
    monkeypatch: pytest.MonkeyPatch,
    warm_up_s: float,
    longest_idle_s: float,
    expected: list[int],
) -> None:
    monkeypatch.setattr(cpu_engine, "WARM_UP_S", warm_up_s)
    monkeypatch.setattr(cpu_engine, "LONGEST_IDLE_S", longest_idle_s)
    monkeypatch.setattr(cpu_engine, "LONGEST_TRIED", 3)
    engine = load(checkpoint[1])
    tried: list[int] = []
    step = engine.step

    def note(batch: Batch) -> LazyTensor:
        tried.append(batch.num_tokens)
        return step(batch)

    monkeypatch.setattr(engine, "step", note)
    engine.warm_up()
    assert tried == ([150] if not warm_up_s else [150, 1, 2, 3])
    tried.clear()
    while engine.idle():
        pass
    assert tried == expected
    assert not engine.idle()


def test_only_sequences_that_want_it_get_a_dense_row(checkpoint: tuple[Any, Path]) -> None:
    engine = load(checkpoint[1])
    unwanted = Sequence(token_ids=random_ids(4), pool_spans=whole_span(4), outputs=frozenset())
    wanted = make_sequence(random_ids(6))
    lazy = engine.step(pack(unwanted, wanted, unwanted))
    alone = engine.step(pack(wanted))
    result = lazy.result()
    assert result.output(OutputKind.DENSE).shape == (1, DIM)
    np.testing.assert_allclose(
        result.rows(OutputKind.DENSE, 1), alone.result().output(OutputKind.DENSE), atol=1e-5, rtol=1e-5
    )


def test_an_attention_backend_of_gpus_is_refused(checkpoint: tuple[Any, Path]) -> None:
    with pytest.raises(ConfigError, match="--attention 'fa3' does not run on the CPU; sdpa does"):
        load(checkpoint[1], config=EngineConfig(device="cpu", attention="fa3"))


def test_number_of_threads_holds_on_the_thread_that_steps_alone(
    checkpoint: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = torch.get_num_threads()
    engine = load(checkpoint[1], config=EngineConfig(device="cpu", num_threads=1, cpu_backend="torch"))
    seen: list[int] = []

    def ask(*_arguments: object) -> None:
        seen.append(torch.get_num_threads())

    # torch's setting belongs to a thread: ask the one that steps.
    monkeypatch.setattr(StepRunner, "run", ask)
    engine.step(pack(make_sequence(random_ids(5)))).result()
    engine.close()
    assert (seen, torch.get_num_threads()) == ([1], outside)
