"""A model held in this process, and how it is run: without server and queue, by the same tokenizer and engine."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import PathLike
from threading import Event
from typing import ParamSpec, Self, TypeVar

import numpy as np

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import BatchLimits, Engine, EngineInfo, LazyTensor
from rosebed.core.errors import Cancelled, ConfigError, NonFiniteOutput, Unavailable
from rosebed.core.extras import needs_extra
from rosebed.core.hub import resolve_model_folder
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec
from rosebed.core.outputs import OutputSpecs, RowStatus, output_bytes
from rosebed.core.types import Batch, Float32Array, Lane, OutputKind
from rosebed.core.types import Sequence as TokenSequence

with needs_extra("a model in this process", "serve"):
    from rosebed.rose import load_engine
    from rosebed.rose.config import EngineConfig, in_process
    from rosebed.text.tokenizer import TextTokenizer


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LocalModel:
    """A tokenizer, an engine and the thread it runs on. Usable from several threads, one call after another."""

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        revision: str | None = None,
        overrides: ModelOverrides = ModelOverrides(),
        config: EngineConfig = EngineConfig(graphs="lazy"),
    ) -> None:
        """Load `model`, a folder or a hub id (at `revision`). A `SetupError` says what is wrong with it.

        CUDA graphs are captured as batches recur, so that a short job starts at once. `bulk_slot` and `refine_graphs`
        are of servers alone.
        """
        _check_types(revision, overrides, config)
        folder = resolve_model_folder(model, revision=revision)
        self.spec: ModelSpec = resolve_model_spec(CheckpointFiles.read(folder), overrides)
        """What the checkpoint says of itself."""
        self._check_spec()
        self._tokenizer = TextTokenizer.load(self.spec)
        # NOTE: an engine is used from one thread, a CUDA engine from the one that loaded it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=type(self).__name__.lower())
        self._process = os.getpid()
        self._is_closed = False
        try:
            self._engine: Engine = self._on_thread(load_engine, self.spec, in_process(config))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    @property
    def info(self) -> EngineInfo:
        """What was loaded, and where it runs."""
        return self._engine.info

    def _check_spec(self) -> None:
        """Refuse a model that is of the other kind."""
        raise NotImplementedError

    def _rows(self, sequences: Sequence[TokenSequence]) -> Float32Array:
        """`run_sequences` where the engine is."""
        abandoned = Event()
        try:
            return self._on_thread(run_sequences, self._engine, sequences, abandoned)
        except BaseException:  # Ctrl-C ends only the waiting
            abandoned.set()
            raise

    def close(self) -> None:
        """Free the model's memory, once calls under way have ended. It computes no more."""
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        try:
            closing = self._thread.submit(self._engine.close)
        except RuntimeError:  # the interpreter is shutting down: it has ended the thread, and frees the rest
            return
        closing.result()
        self._thread.shutdown()

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise Unavailable(
                f"this {type(self).__name__} belongs to the process that was forked: make one in each process"
            )
        if self._is_closed:
            raise Unavailable(f"this {type(self).__name__} is closed")

    def _on_thread(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        try:
            future = self._thread.submit(function, *args, **kwargs)
        except RuntimeError as error:  # closed by another thread since it was asked, or too late for any thread
            self._check_open()
            raise Unavailable("the interpreter is shutting down") from error
        return future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _check_types(revision: object, overrides: object, config: object) -> None:
    for name, value, expected in (
        ("revision", revision, str | None),
        ("overrides", overrides, ModelOverrides),
        ("config", config, EngineConfig),
    ):
        if not isinstance(value, expected):
            raise ConfigError(f"{name} should be {getattr(expected, '__name__', expected)}, not {value!r}")


def run_sequences(engine: Engine, sequences: Sequence[TokenSequence], abandoned: Event | None = None) -> Float32Array:
    """The one row that each sequence has of the model's main output, in order: float32[n, dim].

    A row that is not finite is tried once more by itself, since a neighbour in the batch can have spoilt it;
    NonFiniteOutput names those that stay bad. Once `abandoned` is set no further batch is begun, and Cancelled raised.
    """
    (kind,) = engine.info.main_output
    rows = np.empty((len(sequences), engine.info.outputs[kind].dim), np.float32)
    batches = _split(sequences, engine.info.limits, engine.info.outputs)
    suspects = _run(engine, _while_wanted(batches, abandoned), sequences, rows)
    failed = _run(engine, _while_wanted(([index] for index in suspects), abandoned), sequences, rows)
    if failed:
        what = "vector" if kind is OutputKind.DENSE else "score"
        raise NonFiniteOutput(f"the model gives no finite {what} for input[{min(failed)}]")
    return rows


def _split(sequences: Sequence[TokenSequence], limits: BatchLimits, specs: OutputSpecs) -> Iterator[list[int]]:
    """Indices of each batch, longest sequences first: batches of like lengths, and memory runs out at once or never."""
    batch: list[int] = []
    tokens = num_bytes = 0
    for index in sorted(range(len(sequences)), key=lambda index: -sequences[index].num_tokens):
        more_tokens, more_bytes = sequences[index].num_tokens, output_bytes(sequences[index], specs)
        is_full = (
            tokens + more_tokens > limits.tokens
            or num_bytes + more_bytes > limits.output_bytes
            or len(batch) >= min(limits.sequences, limits.spans)
        )
        if batch and is_full:
            yield batch
            batch, tokens, num_bytes = [], 0, 0
        batch.append(index)
        tokens += more_tokens
        num_bytes += more_bytes
    if batch:
        yield batch


def _while_wanted(batches: Iterator[list[int]], abandoned: Event | None) -> Iterator[list[int]]:
    for batch in batches:
        if abandoned is not None and abandoned.is_set():
            raise Cancelled("the caller has left")
        yield batch


def _run(
    engine: Engine, batches: Iterator[list[int]], sequences: Sequence[TokenSequence], rows: Float32Array
) -> list[int]:
    """Fill those of `rows` that `batches` name; the indices of those that are not finite.

    As many steps as the engine takes are kept in flight, so that it works while the next batch is made.
    """
    bad: list[int] = []
    in_flight: deque[tuple[list[int], LazyTensor]] = deque()
    try:
        for batch in batches:
            if len(in_flight) == engine.info.max_in_flight:
                bad += _collect(*in_flight.popleft(), rows)
            in_flight.append((batch, engine.step(Batch.pack((sequences[i] for i in batch), lane=Lane.BULK))))
        while in_flight:
            bad += _collect(*in_flight.popleft(), rows)
    finally:
        for _, step in in_flight:  # after an error: buffers go back only once nothing writes to them
            with suppress(Exception):
                step.result()
            step.release()
    return bad


def _collect(batch: list[int], step: LazyTensor, rows: Float32Array) -> list[int]:
    try:
        result = step.result()
        (output,) = result.layout.slots
        rows[batch] = result.output(output)
        return [index for index, status in zip(batch, result.status, strict=True) if status != RowStatus.OK]
    finally:
        step.release()
