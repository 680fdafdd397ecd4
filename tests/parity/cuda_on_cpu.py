"""The CUDA engine on a CPU: everything but its kernels, its copies and its driver, which plain torch stands in for.

Steps end when they are enqueued, and a replay runs the model again over the slot's static memory.
"""

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rose_checkpoints import spec_of
from torch import Tensor

from rosebed.core.types import SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.attention.masks import position_mask
from rosebed.rose.config import EngineConfig
from rosebed.rose.cuda import driver, engine, graphs, lazy, slot
from rosebed.rose.cuda.attention import AttentionSet, BoundAttention
from rosebed.rose.cuda.attention_choice import OURS, AttentionChoice
from rosebed.rose.cuda.engine import CudaEngine
from rosebed.rose.cuda.history import History
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.loader import load_model
from rosebed.rose.ops import reference

CPU = torch.device("cpu")
MEGABYTE = 1 << 20
"""What each graph takes."""


class PlainAttention:
    """A `GraphAttention` by torch's own operator, sequence by sequence."""

    def __init__(self, spec: AttentionSpec) -> None:
        self._spec = spec

    def plan(self, layout: SequenceLayout, key: GraphKey, slot: int) -> None:
        """Nothing."""

    def bind(self, cu_seqlens: Tensor, num_tokens: int) -> Attention:
        def forward(q: Tensor, k: Tensor, v: Tensor, relative_bias: Tensor | None) -> Tensor:
            out = torch.zeros_like(q)
            bounds: list[int] = cu_seqlens.tolist()
            for start, end in pairwise(bounds):
                if start < end:
                    heads = (x[start:end].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
                    mask = position_mask(end - start, self._spec, CPU)
                    attended = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True)
                    out[start:end] = attended[0].transpose(0, 1)
            return out

        return BoundAttention(forward)


class PlainQueue:
    """A `Queue` that does at once what it is told, and notes the waits."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.waits: list[Any] = []

    def copy_in(self, target: int, source: int, num_bytes: int) -> None:
        ctypes.memmove(target, source, num_bytes)

    copy_out = copy_in

    def record(self, event: Any) -> None:
        """Everything has ended already."""

    def wait(self, event: Any) -> None:
        self.waits.append(event)

    def launch(self, graph: Callable[[], object]) -> None:
        graph()


class PlainStream:
    def __init__(self, device: object = None, priority: int = 0) -> None:
        self.priority = priority

    def wait_stream(self, stream: object) -> None: ...

    def synchronize(self) -> None: ...


class PlainEvent:
    def __init__(self, *, enable_timing: bool = False) -> None: ...

    def record(self, stream: object) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: object) -> float:
        return 1.0


def _finalize_into(vectors: Tensor, dimensions: Tensor, normalize: Tensor, *, out: Tensor, finite: Tensor) -> None:
    rows, good = reference.finalize_dense(vectors, dimensions, normalize.bool())
    out.copy_(rows)
    finite.copy_(good)


def _capture(self: Any, key: GraphKey) -> graphs.CapturedStep:
    hidden_states = self.run(key)
    step = self._steps[key] = graphs.CapturedStep(lambda: self.run(key), SimpleNamespace(), hidden_states)  # pyright: ignore[reportArgumentType]
    self.num_bytes += MEGABYTE
    return step


def stand_in(monkeypatch: pytest.MonkeyPatch, *, max_graph_tokens: int = 512) -> None:
    """Put the stand-ins in place; graphs hold up to `max_graph_tokens`."""
    zeros = torch.zeros

    def unpinned_zeros(*size: Any, pin_memory: bool = False, **named: Any) -> Tensor:
        return zeros(*size, **named)

    monkeypatch.setattr(torch, "zeros", unpinned_zeros)
    for name, value in {
        "Stream": PlainStream,
        "Event": PlainEvent,
        "stream": nullcontext,
        "current_stream": PlainStream,
        "graph_pool_handle": lambda: (0, 0),
        "mem_get_info": _mem_get_info,
        "set_device": _itself,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(slot, "Queue", PlainQueue)
    monkeypatch.setattr(slot, "device_pointer", Tensor.data_ptr)
    monkeypatch.setattr(lazy, "event_handle", _itself)
    monkeypatch.setattr(graphs, "finalize_dense_into", _finalize_into)
    monkeypatch.setattr(graphs.GraphCache, "_capture", _capture)
    monkeypatch.setattr(engine, "create_attentions", _create_attentions)
    monkeypatch.setattr(engine, "MAX_GRAPH_TOKENS", max_graph_tokens)
    assert driver.Queue is not PlainQueue


def _mem_get_info(_device: object = None) -> tuple[int, int]:
    return 1 << 34, 1 << 34


def _itself(event: PlainEvent) -> PlainEvent:
    return event


def _create_attentions(_name: str, spec: AttentionSpec, *_rest: object) -> AttentionSet:
    return AttentionSet({OURS: PlainAttention(spec)}, AttentionChoice((OURS,), spec.head_dim))


def cuda_engine(folder: Path, config: EngineConfig, history: History | None = None) -> CudaEngine:
    """The engine of the model in `folder`, in float32."""
    loaded = load_model(spec_of(folder), reference, device=CPU, dtype=torch.float32)
    return CudaEngine(loaded, config, {}, history)
