"""The CUDA engine: `step` enqueues one copy in, one graph, one copy out and one event, and returns.

Nothing in `step` waits for the device. The lanes have a slot each, with a stream, memory and graphs of its own; the
online one's stream goes first where both have work.
"""

import logging
from dataclasses import replace

import numpy as np
import torch

from rosebed.core.engine import BatchLimits, Completion, EngineInfo
from rosebed.core.engine_statistics import EngineStatistics
from rosebed.core.types import Batch, Lane, Sequence, whole_span
from rosebed.rose.config import EngineConfig
from rosebed.rose.cuda.attention import create_attentions
from rosebed.rose.cuda.attention_choice import AttentionRows
from rosebed.rose.cuda.budget import CANDIDATES, choose_budget
from rosebed.rose.cuda.capture import capture_within
from rosebed.rose.cuda.history import History
from rosebed.rose.cuda.keys import GraphKey, bulk_ladder, in_slot, ladder, order_of_slots
from rosebed.rose.cuda.lazy import EventTensor
from rosebed.rose.cuda.refiner import Refiner
from rosebed.rose.cuda.slot import MAX_IN_FLIGHT, Slot, round_up
from rosebed.rose.loader import LoadedModel

_logger = logging.getLogger(__name__)

MAX_GRAPH_TOKENS = 8192
"""Larger batches run their kernels one by one: they keep the GPU busy for long enough anyway."""
STRETCH = 4 / 3
"""What a batch may hold over its budget rather than leave a small rest: a step of the rest would take longer."""
MAX_OUTPUT_BYTES = 64 << 20
UNMEASURED_BUDGET = 4096
"""Tokens of a batch until `warm_up` has measured: what most chips and models come to."""
TYPICAL_LENGTH = 512
"""Tokens of the sequences that budgets are measured with."""


class CudaEngine:
    """`Engine` on one GPU. Used from one thread."""

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        attention_rows: AttentionRows,
        history: History | None = None,
    ) -> None:
        """`attention_rows`: measured times, by which auto chooses. `history`: where the sizes of steps are kept, by
        which graphs are refined; None keeps none."""
        self._loaded = loaded
        self._config = config
        self._history = history
        self._refiner: Refiner | None = None
        self._max_bytes = None if config.graph_memory_mb is None else config.graph_memory_mb << 20
        self._ladder = ladder(MAX_GRAPH_TOKENS)
        self._online = self._slot(Lane.ONLINE, self._ladder, attention_rows)
        self.slots = {Lane.ONLINE: self._online}
        """By lane; a lane that is missing uses the online one."""
        if config.bulk_slot:
            self.slots[Lane.BULK] = self._slot(Lane.BULK, bulk_ladder(self._ladder), attention_rows)
        self._info = self._info_for(config.token_budget or UNMEASURED_BUDGET)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def completion(self) -> Completion:
        return Completion.POLL

    @property
    def separate_lanes(self) -> bool:
        return len(self.slots) > 1

    def step(self, batch: Batch) -> EventTensor:
        slot = self.slots.get(batch.lane, self._online)
        # NOTE: without the wait, blocks of a bulk step would hold the multiprocessors while the last kernels of an
        # online one, each of which waits for the one before, come to need them.
        return slot.step(batch, behind=None if slot is self._online else self._online)

    def warm_up(self) -> None:
        """Capture every graph, so that no live step compiles or captures; then choose the token budget."""
        torch.cuda.set_device(self._loaded.device)  # each thread has its own, and starts with the first GPU
        if self._config.graphs == "full":
            self._capture()
        if self._config.token_budget is None:
            step_ms = {tokens: self._measure(tokens) for tokens in CANDIDATES}
            self._info = self._info_for(choose_budget(step_ms))
            _logger.info("token budget %d, by ms per step of %s", self._info.limits.tokens, step_ms)
        for slot in self.slots.values():
            slot.start_counting()
        if self._config.graphs == "full" and self._history is not None:
            self._refiner = Refiner(self.slots, self._history, max_bytes=self._max_bytes, free_bytes=self._free_bytes)

    def idle(self) -> bool:
        """Add a graph for a size that is frequent, by halves: its kernels, then the graph."""
        return self._refiner is not None and self._refiner.advance()

    def statistics(self) -> EngineStatistics:
        return {lane: slot.graphs.statistics() for lane, slot in self.slots.items()}

    def close(self) -> None:
        for lane, slot in self.slots.items():
            slot.stream.synchronize()
            _logger.info("%s: %s", lane.name.lower(), slot.graphs.counts)
        if self._refiner is not None:
            self._refiner.save()
            self._refiner = None

    def _capture(self) -> None:
        choice = self._online.attentions.choice
        online, bulk = choice.keys(self._ladder), list[GraphKey]()
        if self.separate_lanes:
            bulk = in_slot(choice.keys(bulk_ladder(self._ladder)), Lane.BULK)
        needed, more = order_of_slots(online, bulk)
        report = capture_within(needed, more, self._compile_and_capture, self._graph_bytes, self._max_bytes)
        for lane, slot in self.slots.items():
            slot.use([key for key in report.keys if key.slot is lane])
        if len(report.keys) < len(needed) + len(more):
            _logger.warning("%s; --graph-memory-mb allows no more, so the ladder is coarser", report)
        else:
            _logger.info("%s", report)

    def _compile_and_capture(self, key: GraphKey) -> None:
        graphs = self.slots[key.slot].graphs
        graphs.compile(key)
        graphs.capture(key)

    def _graph_bytes(self) -> int:
        return sum(slot.graphs.num_bytes for slot in self.slots.values())

    def _free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self._loaded.device)[0]

    def _has_room(self) -> bool:
        return self._max_bytes is None or self._graph_bytes() < self._max_bytes

    def _slot(self, lane: Lane, rungs: tuple[int, ...], attention_rows: AttentionRows) -> Slot:
        loaded, config = self._loaded, self._config
        attentions = create_attentions(
            config.attention, loaded.model.attention_spec, loaded.device, loaded.dtype, attention_rows
        )
        return Slot(
            loaded,
            attentions,
            rungs,
            lane=lane,
            largest=max(MAX_GRAPH_TOKENS, round_up(loaded.spec.max_length)),
            lazy=config.graphs == "lazy",
            has_room=self._has_room,
        )

    def _measure(self, tokens: int) -> float:
        """ms of a step full of `TYPICAL_LENGTH` sequences: the least of a few."""
        length = min(tokens, TYPICAL_LENGTH, self._info.max_length)
        ids = np.ones(length, np.int32)
        sequence = Sequence(token_ids=ids, pool_spans=whole_span(length), outputs=self._info.main_output)
        batch = Batch.pack([sequence] * (tokens // length))
        times: list[int] = []
        for _ in range(4):
            lazy = self.step(batch)
            times.append(lazy.result().device_ns)
            lazy.release()
        return min(times) / 1e6

    def _info_for(self, tokens: int) -> EngineInfo:
        """Limits that keep every batch within one graph of the ladder."""
        num_rows = GraphKey(next(rung for rung in self._ladder if rung >= min(tokens, self._ladder[-1])), "").num_rows
        limits = BatchLimits(
            tokens=tokens,
            sequences=num_rows,
            spans=num_rows,
            output_bytes=MAX_OUTPUT_BYTES,
            stretched_tokens=min(int(tokens * STRETCH), MAX_GRAPH_TOKENS),
        )
        return replace(self._loaded.engine_info(limits, max_in_flight=MAX_IN_FLIGHT), dtype=self._config.dtype)
