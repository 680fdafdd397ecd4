"""One execution slot: a stream with all that steps on it use, so that the steps of two slots can run at once.

A slot's steps run in order on its stream, so that the next may be enqueued while one runs: only host memory is ringed.
Knows nothing of warming up and of budgets.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import StepFailed
from rosebed.core.outputs import OutputLayout, OutputSlot
from rosebed.core.types import DENSE_ONLY, Batch, Lane, OutputKind
from rosebed.rose.cuda.attention import AttentionSet
from rosebed.rose.cuda.attention_choice import OURS
from rosebed.rose.cuda.driver import EventHandle, Queue, device_pointer
from rosebed.rose.cuda.graphs import DeviceBlocks, GraphCache, rows_offset
from rosebed.rose.cuda.keys import COARSE_STEP, GraphKey, rungs_of, smallest_key, tokens_for_rows, tokens_for_sequences
from rosebed.rose.cuda.lazy import EventTensor, Ring, RingEntry, device_lost
from rosebed.rose.cuda.refine import fine_tokens
from rosebed.rose.cuda.staging import num_words, write_batch
from rosebed.rose.heads.dense import DenseRows
from rosebed.rose.loader import LoadedModel

MAX_IN_FLIGHT = 2
"""Steps of one slot."""
PRIORITY = {Lane.ONLINE: -1, Lane.BULK: 0}
"""Of streams: where both have work, blocks of the lower number go first."""


class Slot:
    """What the steps of one lane run in. Used from one thread."""

    def __init__(
        self,
        loaded: LoadedModel,
        attentions: AttentionSet,
        ladder: tuple[int, ...],
        *,
        lane: Lane,
        largest: int,
        lazy: bool,
        has_room: Callable[[], bool],
    ) -> None:
        """`attentions` are its own: backends plan into memory that only one stream may read. `largest` is the most
        tokens of a step; for `lazy` and `has_room` see `GraphCache`."""
        self.lane = lane
        self.attentions = attentions
        self.stream = torch.cuda.Stream(loaded.device, priority=PRIORITY[lane])
        self.last_done: EventHandle | None = None
        """The end of the step enqueued last."""
        self.wanted: Counter[GraphKey] = Counter()
        """Steps within the ladder by the key of their own size, since warming up."""
        self._loaded = loaded
        self._largest = largest
        self._rungs = dict.fromkeys(attentions.backends, ladder)
        self._blocks, entries = self._allocate()
        self.stream.wait_stream(torch.cuda.current_stream(loaded.device))  # which weights and zeros came by
        self._ring = Ring(entries)
        self._queue = Queue(self.stream)
        self._words_pointer = device_pointer(self._blocks.words)
        self._out_pointer = device_pointer(self._blocks.out)
        self.graphs = GraphCache(loaded, attentions.backends, self._blocks, self.stream, lazy=lazy, has_room=has_room)
        self._row_numbers = np.arange(GraphKey(largest, "").num_rows + 1)

    @property
    def idle(self) -> bool:
        """Whether no step is in flight."""
        return self._ring.all_free

    def use(self, keys: list[GraphKey]) -> None:
        """Run batches in these keys alone; larger ones kernel by kernel."""
        self._rungs = dict.fromkeys(self._rungs, ()) | rungs_of(keys)

    def start_counting(self) -> None:
        """Steps until now were of warming up."""
        self.wanted.clear()
        self.graphs.start_counting()

    @property
    def held(self) -> Collection[GraphKey]:
        """Keys that have graphs."""
        return self.graphs.held

    @property
    def graph_bytes(self) -> int:
        return self.graphs.num_bytes

    def rung_of(self, key: GraphKey) -> int | None:
        """Tokens of the ladder's key for steps of the size of `key`; None beyond the ladder."""
        rung = smallest_key(self._rungs.get(key.attention, ()), key.num_tokens, key.attention)
        return None if rung is None else rung.num_tokens

    def compile(self, key: GraphKey) -> None:
        """See `GraphCache`."""
        self.graphs.compile(key)

    def capture_idle(self, key: GraphKey) -> None:
        """Capture `key`, which has been compiled; steps of just its size run in it from now on."""
        self.graphs.capture_idle(key)

    def step(self, batch: Batch, *, behind: "Slot | None" = None) -> EventTensor:
        """Enqueue `batch`; it begins after all that `behind` has enqueued so far."""
        rows = DenseRows.of(batch, self._loaded.spec)
        key = self._key(batch, rows)
        layout = self._output_layout(batch, key)
        entry = self._ring.acquire()
        try:
            if behind is not None and behind.last_done is not None and not behind.idle:
                self._queue.wait(behind.last_done)
            self._enqueue(entry, key, batch, rows, layout)
        except BaseException as error:
            self._ring.give_back(entry)
            if isinstance(error, torch.AcceleratorError):
                raise device_lost(error) from error
            raise
        self.last_done = entry.done_handle
        return EventTensor(entry, layout, rows.owners, lambda: self._ring.give_back(entry))

    def _key(self, batch: Batch, rows: DenseRows) -> GraphKey:
        attention = self.attentions.choose(batch.layout, idle=self.idle)
        num_rows = max(len(rows.owners), batch.num_sequences)
        num_tokens = max(batch.num_tokens, tokens_for_rows(num_rows))
        if attention != OURS:
            num_tokens = max(num_tokens, tokens_for_sequences(batch.num_sequences))
        if num_tokens > self._largest:
            raise StepFailed(
                f"{batch.num_tokens} tokens in {batch.num_sequences} sequences with {num_rows} vectors are more than "
                f"this engine holds: {self._largest} tokens, or a quarter as many vectors"
            )
        key = smallest_key(self._rungs[attention], num_tokens, attention, batch.num_sequences, slot=self.lane)
        if key is None:
            return GraphKey.holding(round_up(num_tokens), attention, batch.num_sequences, slot=self.lane)
        fine, wanted = fine_tokens(num_tokens), key
        if fine < key.num_tokens:
            wanted = GraphKey.holding(fine, attention, batch.num_sequences, slot=self.lane)
        self.wanted[wanted] += 1
        return wanted if wanted in self.graphs.held else key

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
            with torch.cuda.stream(self.stream):
                self.attentions.backends[key.attention].plan(batch.layout, key, entry.number)

    def _forward(self, key: GraphKey, num_tokens: int) -> Tensor:
        """Enqueue the pass of a batch of `num_tokens`: hidden states [num_tokens of the key, hidden]."""
        captured = self.graphs.find(key, num_tokens)
        if captured is None:
            with torch.cuda.stream(self.stream):
                return self.graphs.run(key)
        self._queue.launch(captured.handle)
        return captured.hidden_states

    @torch.inference_mode()
    def _enqueue_tails(self, entry: RingEntry, layout: OutputLayout, batch: Batch, hidden_states: Tensor) -> None:
        """Outputs that few steps want are not part of any graph: they follow it on the same stream."""
        with torch.cuda.stream(self.stream):
            for kind in layout.slots.keys() - DENSE_ONLY:
                slot, head = layout.slots[kind], self._loaded.tails[kind]
                places = torch.from_numpy(head.rows(batch)[0]).to(self._loaded.device, non_blocking=True)
                target = entry.out_tensor[slot.offset : slot.offset + slot.num_bytes].view(torch.float32)
                target.copy_(head(hidden_states[places]).reshape(-1), non_blocking=True)

    def _output_layout(self, batch: Batch, key: GraphKey) -> OutputLayout:
        """As `OutputLayout.plan`, with the first slot where the key's graph puts the dense rows."""
        if batch.outputs == DENSE_ONLY and batch.layout.num_spans == batch.num_sequences:
            offset, starts = rows_offset(key.num_rows), self._row_numbers[: batch.num_sequences + 1]
            slot = OutputSlot(offset=offset, dim=self._loaded.spec.dim, row_starts=starts)
            return OutputLayout(
                num_sequences=batch.num_sequences, slots={OutputKind.DENSE: slot}, num_bytes=offset + slot.num_bytes
            )
        planned = OutputLayout.plan(batch, self._loaded.outputs)
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
                stream=self.stream,
            )
            for number in range(MAX_IN_FLIGHT)
        ]
        return blocks, entries


def round_up(num_tokens: int) -> int:
    """Tokens of a key above the ladder."""
    return -(-num_tokens // COARSE_STEP) * COARSE_STEP
