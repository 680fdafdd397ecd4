"""Bare `Engine.step`: what the device and its driver cost, without queue, wire or text."""

from collections import deque
from collections.abc import Iterator

import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import Stages, TargetInfo, TargetSettings
from rosebed.bench.targets.in_process import InProcessTarget, Result
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import Engine, LazyTensor
from rosebed.core.errors import InvalidInput
from rosebed.core.extras import needs_extra
from rosebed.core.hub import resolve_model_folder
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.outputs import output_bytes
from rosebed.core.types import Batch, Float32Array, OutputKind, Sequence, whole_span

Plan = list[list[Sequence]]
"""The sequences of each step."""


class EngineTarget(InProcessTarget):
    """One engine, loaded by `describe`."""

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__()
        self._settings = settings
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "describe comes first"
        return self._engine

    async def describe(self) -> TargetInfo:
        with needs_extra("an engine in process", "serve"):
            from rosebed.rose import load_engine
            from rosebed.rose.config import in_process
        folder = resolve_model_folder(self._settings.address.location)
        spec = resolve_model_spec(CheckpointFiles.read(folder), self._settings.overrides)
        self._engine = load_engine(spec, in_process(self._settings.engine))
        self._engine.warm_up()
        info = self._engine.info
        return TargetInfo(
            server="rosebed engine, in process",
            model=info.model,
            takes_ids=True,
            takes_text=False,
            max_length=info.max_length,
            vocab_size=info.vocab_size,
            dtype=info.dtype,
            device=info.device,
            has_lanes=True,
        )

    async def count_tokens(self, text: str) -> int:  # noqa: ARG002 - the protocol's name
        raise InvalidInput("an engine takes no text")

    def encode(self, request: BenchRequest) -> Plan:
        sequences = [Sequence(token_ids=ids, pool_spans=whole_span(len(ids))) for ids in request.token_ids]
        return list(plan_steps(sequences, self.engine))

    def call(self, payload: Plan) -> Result:
        """All steps of one request, as many in flight as the engine takes."""
        in_flight: deque[LazyTensor] = deque()
        rows: list[Float32Array] = []
        device_ns = 0
        for sequences in payload:
            if len(in_flight) == self.engine.info.max_in_flight:
                device_ns += _collect(in_flight.popleft(), rows)
            in_flight.append(self.engine.step(Batch.pack(sequences)))
        while in_flight:
            device_ns += _collect(in_flight.popleft(), rows)
        vectors = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return Result(vectors, Stages(device_ns=device_ns, num_steps=len(payload)))

    async def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


def plan_steps(sequences: list[Sequence], engine: Engine) -> Iterator[list[Sequence]]:
    """Cut `sequences`, in order, into batches within the engine's limits; one that exceeds them goes alone."""
    limits, specs = engine.info.limits, engine.info.outputs
    most = (limits.tokens, min(limits.sequences, limits.spans), limits.output_bytes)
    batch: list[Sequence] = []
    used = (0, 0, 0)
    for sequence in sequences:
        added = (sequence.num_tokens, 1, output_bytes(sequence, specs))
        total = tuple(a + b for a, b in zip(used, added, strict=True))
        if batch and any(amount > limit for amount, limit in zip(total, most, strict=True)):
            yield batch
            batch, total = [], added
        batch.append(sequence)
        used = total
    yield batch


def _collect(step: LazyTensor, rows: list[Float32Array]) -> int:
    """Copy a step's vectors out, as any caller must; the device's time in ns."""
    try:
        result = step.result()
        rows.append(result.output(OutputKind.DENSE).copy())
        return result.device_ns
    finally:
        step.release()
