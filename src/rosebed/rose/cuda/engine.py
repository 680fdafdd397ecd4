"""The CUDA engine: `step` enqueues one copy in, one graph, one copy out and one event, and returns.

Nothing in `step` waits for the device. Steps run in order on one stream, so the next may be enqueued while one runs.
"""

import logging
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rosebed.core.engine import BatchLimits, Completion, EngineInfo
from rosebed.core.engine_statistics import EngineStatistics
from rosebed.core.errors import StepFailed
from rosebed.core.outputs import OutputLayout, OutputSlot
from rosebed.core.types import DENSE_ONLY, Batch, Lane, OutputKind, Sequence, whole_span
from rosebed.rose.config import EngineConfig
from rosebed.rose.cuda.attention import create_attentions
from rosebed.rose.cuda.attention_choice import OURS, AttentionRows
from rosebed.rose.cuda.budget import CANDIDATES, choose_budget
from rosebed.rose.cuda.driver import Queue, device_pointer
from rosebed.rose.cuda.graphs import DeviceBlocks, GraphCache, rows_offset
from rosebed.rose.cuda.keys import (
    COARSE_STEP,
    GraphKey,
    ladder,
    rungs_of,
    smallest_key,
    tokens_for_rows,
    tokens_for_sequences,
)
from rosebed.rose.cuda.lazy import EventTensor, Ring, RingEntry, device_lost
from rosebed.rose.cuda.staging import num_words, write_batch
from rosebed.rose.heads.dense import DenseRows
from rosebed.rose.heads.token import token_rows
from rosebed.rose.loader import LoadedModel

_logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 2
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

    def __init__(self, loaded: LoadedModel, config: EngineConfig, attention_rows: AttentionRows) -> None:
        """`attention_rows`: measured times, by which auto chooses."""
        self._loaded = loaded
        self._config = config
        self._ladder = ladder(MAX_GRAPH_TOKENS)
        self._largest = max(MAX_GRAPH_TOKENS, _round_up(loaded.spec.max_length))
        self._stream = torch.cuda.Stream(loaded.device, priority=-1)
        self._attentions = create_attentions(
            config.attention, loaded.model.attention_spec, loaded.device, loaded.dtype, attention_rows
        )
        self._rungs = dict.fromkeys(self._attentions.backends, self._ladder)
        self._blocks, entries = self._allocate()
        self._ring = Ring(entries)
        self._queue = Queue(self._stream)
        self._words_pointer = device_pointer(self._blocks.words)
        self._out_pointer = device_pointer(self._blocks.out)
        self._graphs = GraphCache(
            loaded,
            self._attentions.backends,
            self._blocks,
            self._stream,
            lazy=config.graphs == "lazy",
            max_bytes=None if config.graph_memory_mb is None else config.graph_memory_mb << 20,
        )
        self._row_numbers = np.arange(GraphKey(self._largest, "").num_rows + 1)
        self._info = self._info_for(config.token_budget or UNMEASURED_BUDGET)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def completion(self) -> Completion:
        return Completion.POLL

    def step(self, batch: Batch) -> EventTensor:
        rows = DenseRows.of(batch, self._loaded.spec)
        key = self._key(batch, rows, idle=self._ring.all_free)
        layout = self._output_layout(batch, key)
        entry = self._ring.acquire()
        try:
            self._enqueue(entry, key, batch, rows, layout)
        except BaseException as error:
            self._ring.give_back(entry)
            if isinstance(error, torch.AcceleratorError):
                raise device_lost(error) from error
            raise
        return EventTensor(entry, layout, rows.owners, lambda: self._ring.give_back(entry))

    def warm_up(self) -> None:
        """Capture every graph, so that no live step compiles or captures; then choose the token budget."""
        if self._config.graphs == "full":
            self._capture()
        if self._config.token_budget is None:
            step_ms = {tokens: self._measure(tokens) for tokens in CANDIDATES}
            self._info = self._info_for(choose_budget(step_ms))
            _logger.info("token budget %d, by ms per step of %s", self._info.limits.tokens, step_ms)
        self._graphs.start_counting()

    def statistics(self) -> EngineStatistics:
        """The figures of its one slot, in which the steps of both lanes run."""
        return {Lane.ONLINE: self._graphs.statistics()}

    def close(self) -> None:
        self._stream.synchronize()
        _logger.info("%s", self._graphs.counts)

    def _capture(self) -> None:
        keys = self._attentions.choice.keys(self._ladder)
        report = self._graphs.capture_all(keys)
        if len(report.keys) < len(keys):
            self._rungs |= rungs_of(report.keys)
            _logger.warning("%s; --graph-memory-mb allows no more, so the ladder is coarser", report)
        else:
            _logger.info("%s", report)

    def _key(self, batch: Batch, rows: DenseRows, *, idle: bool) -> GraphKey:
        attention = self._attentions.choose(batch.layout, idle=idle)
        num_rows = max(len(rows.owners), batch.num_sequences)
        num_tokens = max(batch.num_tokens, tokens_for_rows(num_rows))
        if attention != OURS:
            num_tokens = max(num_tokens, tokens_for_sequences(batch.num_sequences))
        if num_tokens > self._largest:
            raise StepFailed(
                f"{batch.num_tokens} tokens in {batch.num_sequences} sequences with {num_rows} vectors are more than "
                f"this engine holds: {self._largest} tokens, or a quarter as many vectors"
            )
        key = smallest_key(self._rungs[attention], num_tokens, attention, batch.num_sequences)
        return key or GraphKey.holding(_round_up(num_tokens), attention, batch.num_sequences)

    def _enqueue(self, entry: RingEntry, key: GraphKey, batch: Batch, rows: DenseRows, layout: OutputLayout) -> None:
        views = entry.views(key)
        write_batch(views, batch, rows, self._loaded.model.positions)
        self._plan_attention(key, batch, entry)
        self._queue.record(entry.begun_handle)
        self._queue.copy_in(self._words_pointer, entry.words_address, views.words.nbytes)
        hidden_states = self._forward(key, batch.num_tokens)
        num_bytes = rows_offset(key.num_rows) + 4 * self._loaded.spec.dim * len(rows.owners)
        self._queue.copy_out(entry.out_address, self._out_pointer, num_bytes)
        if batch.outputs != DENSE_ONLY:
            self._enqueue_tails(entry, layout, batch, hidden_states)
        self._queue.record(entry.done_handle)

    def _plan_attention(self, key: GraphKey, batch: Batch, entry: RingEntry) -> None:
        if key.attention != OURS:
            with torch.cuda.stream(self._stream):
                self._attentions.backends[key.attention].plan(batch.layout, key, entry.number)

    def _forward(self, key: GraphKey, num_tokens: int) -> Tensor:
        """Enqueue the pass of a batch of `num_tokens`: hidden states [num_tokens of the key, hidden]."""
        captured = self._graphs.find(key, num_tokens)
        if captured is None:
            with torch.cuda.stream(self._stream):
                return self._graphs.run(key)
        self._queue.launch(captured.handle)
        return captured.hidden_states

    @torch.inference_mode()
    def _enqueue_tails(self, entry: RingEntry, layout: OutputLayout, batch: Batch, hidden_states: Tensor) -> None:
        """Outputs that few steps want are not part of any graph: they follow it on the same stream."""
        with torch.cuda.stream(self._stream):
            for kind in layout.slots.keys() - DENSE_ONLY:
                slot = layout.slots[kind]
                places = torch.from_numpy(token_rows(batch, kind)[0]).to(self._loaded.device, non_blocking=True)
                target = entry.out_tensor[slot.offset : slot.offset + slot.num_bytes].view(torch.float32)
                rows = self._loaded.token_heads[kind](hidden_states[places])
                target.copy_(rows.reshape(-1), non_blocking=True)

    def _output_layout(self, batch: Batch, key: GraphKey) -> OutputLayout:
        """As `OutputLayout.plan`, with the first slot where the key's graph puts the dense rows."""
        if batch.outputs == DENSE_ONLY and batch.layout.num_spans == batch.num_sequences:
            offset, starts = rows_offset(key.num_rows), self._row_numbers[: batch.num_sequences + 1]
            slot = OutputSlot(offset=offset, dim=self._loaded.spec.dim, row_starts=starts)
            return OutputLayout(
                num_sequences=batch.num_sequences, slots={OutputKind.DENSE: slot}, num_bytes=offset + slot.num_bytes
            )
        planned = OutputLayout.plan(batch, self._info.outputs)
        shift = rows_offset(key.num_rows) - rows_offset(batch.num_sequences)
        slots = {kind: replace(slot, offset=slot.offset + shift) for kind, slot in planned.slots.items()}
        return replace(planned, slots=slots, num_bytes=planned.num_bytes + shift)

    def _allocate(self) -> tuple[DeviceBlocks, list[RingEntry]]:
        """Static device blocks, and pinned memory for every step in flight."""
        key, loaded = GraphKey(self._largest, ""), self._loaded
        max_words = num_words(key, has_token_types=loaded.has_token_types)
        dense_bytes = rows_offset(key.num_rows) + 4 * loaded.spec.dim * key.num_rows
        tail_bytes = sum(4 * loaded.outputs[kind].dim * self._largest for kind in loaded.outputs.keys() - DENSE_ONLY)
        blocks = DeviceBlocks(
            words=torch.zeros(max_words, dtype=torch.int32, device=loaded.device),
            out=torch.zeros(dense_bytes, dtype=torch.uint8, device=loaded.device),
        )
        entries = [
            RingEntry(
                number,
                max_words,
                dense_bytes + tail_bytes,
                has_token_types=loaded.has_token_types,
                stream=self._stream,
            )
            for number in range(MAX_IN_FLIGHT)
        ]
        return blocks, entries

    def _measure(self, tokens: int) -> float:
        """ms of a step full of `TYPICAL_LENGTH` sequences: the least of a few."""
        length = min(tokens, TYPICAL_LENGTH, self._info.max_length)
        ids = np.ones(length, np.int32)
        batch = Batch.pack([Sequence(token_ids=ids, pool_spans=whole_span(length))] * (tokens // length))
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


def _round_up(num_tokens: int) -> int:
    return -(-num_tokens // COARSE_STEP) * COARSE_STEP
