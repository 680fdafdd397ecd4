"""Measure every attention backend that is installed, and make the rows that `AttentionChoice` reads.

A measurement is one step's worth of layers over equally long sequences, as a graph replays them. Runs for a minute or
two a shape, mostly compiling; never on live traffic.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError
from rosebed.core.types import Batch, Sequence, SequenceLayout, whole_span
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.cuda.attention import BACKENDS, GraphAttention, create_attention
from rosebed.rose.cuda.attention_choice import LAYERS, AttentionShape
from rosebed.rose.cuda.keys import PAY_PER_SEQUENCE, GraphKey, few_sequences
from rosebed.rose.cuda.timing import graph_time_us

_logger = logging.getLogger(__name__)

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
STEP_TOKENS = 4096
"""Of a step, unless one sequence has more."""
PLAN_REPEATS = 20
LEAST_PLAN_US = 10.0
"""Below is the call itself."""


def tune_attention(shapes: Iterable[AttentionShape], device: torch.device) -> list[dict[str, Any]]:
    """Rows for the table's `attention`: µs a layer, and of a plan on the host, by backend."""
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        spec = AttentionSpec(**asdict(shape))
        backends = _installed(spec, device)
        for length in LENGTHS:
            us: dict[str, float] = {}
            plan_us: dict[str, float] = {}
            for name, backend in backends.items():
                _measure(name, backend, spec, length, device, us, plan_us)
            # Lengths between two measured ones take the nearer, by ratio.
            rows.append({**asdict(shape), "most_length": int(length * 2**0.5), "us": us, "plan_us": plan_us})
            _logger.info("%s, length %d: %s", shape, length, us)
    return rows


def _installed(spec: AttentionSpec, device: torch.device) -> dict[str, GraphAttention]:
    found: dict[str, GraphAttention] = {}
    for name in BACKENDS:
        try:
            found[name] = create_attention(name, spec, device, torch.bfloat16)
        except ConfigError as error:
            _logger.warning("not measured: %s", error)
    return found


@torch.inference_mode()
def _measure(
    name: str,
    backend: GraphAttention,
    spec: AttentionSpec,
    length: int,
    device: torch.device,
    us: dict[str, float],
    plan_us: dict[str, float],
) -> None:
    num_sequences = max(1, STEP_TOKENS // length)
    num_tokens = num_sequences * length
    if name in PAY_PER_SEQUENCE and num_sequences > few_sequences(num_tokens):
        return  # auto would not take it
    key = GraphKey.holding(num_tokens, name, num_sequences)
    layout = _equal_lengths(num_sequences, length)
    plan = _plan_time_us(backend, layout, key)
    if plan >= LEAST_PLAN_US:
        plan_us[name] = round(plan, 1)
    cu_seqlens = _padded_bounds(layout, key, device)
    q, k, v = _random_qkv(spec, num_tokens, device)

    def layers() -> None:
        attention = backend.bind(cu_seqlens, num_tokens)
        for _ in range(LAYERS):
            attention.forward(q, k, v)

    us[name] = round(graph_time_us(layers) / LAYERS, 2)


def _plan_time_us(backend: GraphAttention, layout: SequenceLayout, key: GraphKey) -> float:
    times: list[float] = []
    for _ in range(PLAN_REPEATS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        backend.plan(layout, key, 0)
        times.append((time.perf_counter() - started) * 1e6)
    torch.cuda.synchronize()
    return median(times)


def _equal_lengths(num_sequences: int, length: int) -> SequenceLayout:
    sequence = Sequence(token_ids=np.zeros(length, np.int32), pool_spans=whole_span(length))
    return Batch.pack([sequence] * num_sequences).layout


def _padded_bounds(layout: SequenceLayout, key: GraphKey, device: torch.device) -> Tensor:
    """int32[attended_sequences + 1]: sequences beyond the layout's are empty."""
    bounds = np.full(key.attended_sequences + 1, layout.num_tokens, np.int32)
    bounds[: len(layout.cu_seqlens)] = layout.cu_seqlens
    return torch.from_numpy(bounds).to(device)


def _random_qkv(spec: AttentionSpec, num_tokens: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one packed tensor, as a model's are."""
    heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
    packed = torch.randn((num_tokens, sum(heads), spec.head_dim), dtype=torch.bfloat16, device=device)
    q, k, v = packed.split(heads, dim=1)
    return q, k, v
