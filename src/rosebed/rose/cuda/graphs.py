"""One CUDA graph per key: the whole model, pooling and normalisation included. Knows no queue and no batch.

All graphs of a cache share static input and output blocks and one memory pool: they run one after another on one
stream, so nothing they hold has to outlive a replay but the copy-out that follows it there. Each slot has a cache.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rosebed.core.engine_statistics import SlotStatistics
from rosebed.core.outputs import ALIGNMENT
from rosebed.core.types import Batch, Sequence, SequenceLayout, whole_span
from rosebed.rose.cuda.attention import GraphAttention
from rosebed.rose.cuda.capture import StepCounts
from rosebed.rose.cuda.driver import GraphHandle, instantiate
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.staging import input_views
from rosebed.rose.loader import LoadedModel
from rosebed.rose.ops.triton.pool import finalize_dense_into

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBlocks:
    """The static device memory every graph reads from and writes to."""

    words: Tensor
    """int32[max_words]"""
    out: Tensor
    """uint8[max_bytes]: a finite flag per row, then at `rows_offset` float32[num_rows, dim]."""


@dataclass(frozen=True, slots=True, eq=False)
class CapturedStep:
    """A graph and the hidden states it leaves behind, for eager tails."""

    handle: GraphHandle
    graph: torch.cuda.CUDAGraph
    """Owns the memory that the kernels use."""
    hidden_states: Tensor
    """[num_tokens, hidden], valid until the next replay."""


def _one_sequence(num_tokens: int) -> SequenceLayout:
    sequence = Sequence(token_ids=np.zeros(num_tokens, np.int32), pool_spans=whole_span(num_tokens))
    return Batch.pack([sequence]).layout


def rows_offset(num_rows: int) -> int:
    """Where the vectors start in the output block: behind the flags, aligned."""
    return -(-num_rows // ALIGNMENT) * ALIGNMENT


class GraphCache:
    """Captured steps by key."""

    def __init__(
        self,
        loaded: LoadedModel,
        attentions: Mapping[str, GraphAttention],
        blocks: DeviceBlocks,
        stream: torch.cuda.Stream,
        *,
        lazy: bool,
        has_room: Callable[[], bool],
    ) -> None:
        """`lazy`: capture a key the second time it is enqueued, if there is room for it."""
        self._loaded = loaded
        self._attentions = attentions
        self._blocks = blocks
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._lazy = lazy
        self._has_room = has_room
        self.num_bytes = 0
        """Device memory that the pool has grown by."""
        self._capture_seconds = 0.0
        self.counts = StepCounts()
        """Of steps since the start, or since warming up."""
        self._seen: set[GraphKey] = set()
        self._steps: dict[GraphKey, CapturedStep] = {}

    @torch.inference_mode()
    def run(self, key: GraphKey) -> Tensor:
        """Enqueue the step's kernels one by one: hidden states [num_tokens, hidden]; rows land in the output block."""
        inputs = input_views(self._blocks.words, key, has_token_types=self._loaded.has_token_types)
        attention = self._attentions[key.attention].bind(
            inputs.cu_seqlens[: key.attended_sequences + 1], key.num_tokens
        )
        hidden_states = self._loaded.model(inputs.input_ids, inputs.positions, inputs.token_type_ids, attention)
        vectors = self._loaded.dense.vectors(hidden_states, inputs.spans)
        offset, num_bytes = rows_offset(key.num_rows), 4 * vectors.numel()
        finalize_dense_into(
            vectors,
            inputs.dimensions,
            inputs.normalize,
            out=self._blocks.out[offset : offset + num_bytes].view(torch.float32).view_as(vectors),
            finite=self._blocks.out[: key.num_rows],
        )
        return hidden_states

    def find(self, key: GraphKey, num_tokens: int) -> CapturedStep | None:
        """The graph to replay for a step of `num_tokens` that is about to be enqueued; None if its kernels are to be
        run one by one."""
        step = self._steps.get(key)
        if step is None and self._lazy and key in self._seen and self._has_room():
            step = self._capture(key)
            self.counts.num_captures += 1
        if step is None and key not in self._seen:
            self._seen.add(key)
            self.counts.num_cold += 1
        self.counts.count(key, num_tokens, replayed=step is not None)
        return step

    def statistics(self) -> SlotStatistics:
        """The figures of this cache. From any thread."""
        counts = self.counts
        return SlotStatistics(
            graphs=len(self._steps),
            graph_bytes=self.num_bytes,
            capture_seconds=self._capture_seconds,
            replays=counts.num_replayed,
            eager_steps=counts.num_eager,
            cold_steps=counts.num_cold,
            live_captures=counts.num_captures,
            idle_captures=counts.num_idle_captures,
            tokens=counts.tokens,
            padding_tokens=counts.padding_tokens,
        )

    def start_counting(self) -> None:
        """Steps until now were of warming up."""
        self.counts = StepCounts()

    @property
    def held(self) -> Collection[GraphKey]:
        """Keys that are ready for replay."""
        return self._steps.keys()

    def compile(self, key: GraphKey) -> None:
        """Run the key once on empty input, so that it can be captured. Blocks; no step may be in flight."""
        started = time.perf_counter()
        with torch.cuda.stream(self._stream):
            self._blocks.words.zero_()  # what lies there was written for another key
            # NOTE: plans of all keys share memory, and one key's kernels must not run by another's plan.
            self._attentions[key.attention].plan(_one_sequence(key.num_tokens), key, 0)
            self.run(key)
        self._stream.synchronize()
        self._capture_seconds += time.perf_counter() - started

    def capture(self, key: GraphKey) -> None:
        """Make a key that has been compiled ready for replay. Larger keys before smaller ones: then the pool is sized
        once."""
        self._capture(key)

    def capture_idle(self, key: GraphKey) -> None:
        """The same while a server is idle, which is counted apart."""
        self._capture(key)
        self.counts.num_idle_captures += 1

    def _capture(self, key: GraphKey) -> CapturedStep:
        """Record what `run` enqueues. The key must have run before: compiling is not allowed during a capture."""
        started = time.perf_counter()
        torch.cuda.empty_cache()  # capturing does so anyway, which would count as memory that the graph gave back
        free_before = torch.cuda.mem_get_info(self._loaded.device)[0]
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            hidden_states = self.run(key)
        step = self._steps[key] = CapturedStep(instantiate(graph), graph, hidden_states)
        # Not below nothing: another process may have freed memory meanwhile.
        self.num_bytes += max(0, free_before - torch.cuda.mem_get_info(self._loaded.device)[0])
        self._capture_seconds += time.perf_counter() - started
        if self._lazy and not self._has_room():
            _logger.warning("graphs take all that --graph-memory-mb allows: no more are captured")
        return step
