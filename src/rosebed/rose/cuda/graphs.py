"""One CUDA graph per key: the whole model, pooling and normalisation included. Knows no queue and no batch.

All graphs of a cache share static input and output blocks and one memory pool: they run one after another on one
stream, so nothing they hold has to outlive a replay but the copy-out that follows it there.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rosebed.core.outputs import ALIGNMENT
from rosebed.rose.cuda.attention import GraphAttention
from rosebed.rose.cuda.driver import GraphHandle, instantiate
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.staging import input_views
from rosebed.rose.loader import LoadedModel
from rosebed.rose.ops.triton.pool import finalize_dense_into


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


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What warming up has cost."""

    num_graphs: int
    seconds: float
    num_bytes: int
    """Device memory that the graphs' shared pool grew by."""


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
    ) -> None:
        """`lazy`: capture a key the second time it is enqueued."""
        self._loaded = loaded
        self._attentions = attentions
        self._blocks = blocks
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._lazy = lazy
        self._seen: set[GraphKey] = set()
        self._steps: dict[GraphKey, CapturedStep] = {}

    @torch.inference_mode()
    def run(self, key: GraphKey) -> Tensor:
        """Enqueue the step's kernels one by one: hidden states [num_tokens, hidden]; rows land in the output block."""
        inputs = input_views(self._blocks.words, key, has_token_types=self._loaded.has_token_types)
        attention = self._attentions[key.attention].bind(inputs.cu_seqlens, key.num_tokens)
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

    def find(self, key: GraphKey) -> CapturedStep | None:
        """The graph to replay for a step that is about to be enqueued; None if its kernels are to be run one by one."""
        step = self._steps.get(key)
        if step is None and self._lazy and key in self._seen:
            return self._capture(key)
        self._seen.add(key)
        return step

    def capture_all(self, keys: list[GraphKey]) -> CaptureReport:
        """Compile and capture every key, largest first so that the pool is sized once. Blocks."""
        started, free_before = time.perf_counter(), torch.cuda.mem_get_info(self._loaded.device)[0]
        with torch.cuda.stream(self._stream):
            self._blocks.words.zero_()
            for key in sorted(keys, key=lambda key: -key.num_tokens):
                self.run(key)
                self._stream.synchronize()
                self._capture(key)
        free_after = torch.cuda.mem_get_info(self._loaded.device)[0]
        return CaptureReport(len(keys), time.perf_counter() - started, free_before - free_after)

    def _capture(self, key: GraphKey) -> CapturedStep:
        """Record what `run` enqueues. The key must have run before: compiling is not allowed during a capture."""
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            hidden_states = self.run(key)
        step = self._steps[key] = CapturedStep(instantiate(graph), graph, hidden_states)
        return step
