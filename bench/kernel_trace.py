"""What a profiler's trace of steps says of each kernel: its role in the model, its time, its share. Knows no torch.

Kernels overlap where one is launched before the one before has ended, so a kernel's time here is what it adds: from the
end of all before it, or its own start if that is later, to its own end. These times and the gaps make up a step.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MARKER = "spin_kernel"
"""Name in the kernel that is launched behind each operation to tell where it ends."""

EMBEDDING, QKV, ROPE, ATTENTION, OUT, NORM = (
    "embedding",
    "qkv product",
    "qk norm, rope",
    "attention",
    "o product",
    "norm",
)
UP, ACTIVATION, ROUNDING, DOWN, HEAD, GAPS = "up/gate product", "activation", "rounding", "down product", "head", "gaps"
LAYER_ROLES = (QKV, ROPE, ATTENTION, OUT, NORM, UP, ACTIVATION, ROUNDING, DOWN)
"""Roles that every layer has, in order; norms of embeddings and of the end count with them."""

_ROLES = {
    "embed_layer_norm": EMBEDDING,
    "linear": QKV,
    "qk_norm_rope": ROPE,
    "linear_activation": UP,
    "linear_silu_mul": UP,
    "rms_norm": NORM,
    "pool": HEAD,
    "finalize_dense": HEAD,
}
_SUMS = frozenset({"linear_add_layer_norm", "linear_add_rms_norm"})
_BY_NAME = (
    ("work_list", ATTENTION),
    ("indexSelect", EMBEDDING),
    ("vectorized_gather", EMBEDDING),
    ("bias_activation", ACTIVATION),
    ("silu_and_mul", ACTIVATION),
    ("quantize_rows", ROUNDING),
)
_NORMS = re.compile(r"(layer|rms)_norm_kernel")
_GENERIC = frozenset({"device_kernel", "Kernel", "Kernel2", "kernel"})


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch, in µs on the profiler's clock."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Row:
    """All launches of one kernel in one role, over a step."""

    role: str
    name: str
    calls: int
    us: float


class RoleRecorder:
    """Notes the role of each operation as a model calls them."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self._attended = False

    def note(self, operation: str) -> None:
        """`operation` is a method of `Ops`, or "attention"."""
        if operation in _SUMS:
            role = OUT if self._attended else DOWN
        else:
            role = ATTENTION if operation == ATTENTION else _ROLES[operation]
        self._attended = role == ATTENTION
        self.roles.append(role)


def kernels_in(trace: dict[str, Any]) -> list[Kernel]:
    """The kernels of a Chrome trace, by their start."""
    events = (event for event in trace["traceEvents"] if event.get("cat") == "kernel")
    kernels = (Kernel(event["name"], event["ts"], event["ts"] + event["dur"]) for event in events)
    return sorted(kernels, key=lambda kernel: kernel.start)


def roles_of(marked: Iterable[Kernel], operations: Sequence[str]) -> list[tuple[str, str]]:
    """(role, full name) of each kernel of a step that ran with a marker behind each of `operations`, without these."""
    named: list[tuple[str, str]] = []
    at = 0
    for kernel in marked:
        if MARKER in kernel.name:
            at += 1
            continue
        operation = operations[at] if at < len(operations) else HEAD
        named.append((_role(kernel.name, operation), kernel.name))
    if at != len(operations):
        raise ValueError(f"{at} markers in the trace, {len(operations)} operations")
    return named


def _role(name: str, operation: str) -> str:
    if operation in (OUT, DOWN, NORM) and _NORMS.search(name):
        return NORM
    return next((role for part, role in _BY_NAME if part in name), operation)


def split_steps(kernels: Sequence[Kernel], num_steps: int) -> list[Sequence[Kernel]]:
    """Equal parts. ValueError if the steps differ in their number of kernels."""
    size, rest = divmod(len(kernels), num_steps)
    if rest or not size:
        raise ValueError(f"{len(kernels)} kernels in {num_steps} steps")
    return [kernels[at : at + size] for at in range(0, len(kernels), size)]


def added_times(step: Sequence[Kernel]) -> tuple[list[float], float]:
    """(µs that each kernel adds, µs in which none ran)."""
    added: list[float] = []
    gaps, ended = 0.0, step[0].start
    for kernel in step:
        gaps += max(0.0, kernel.start - ended)
        added.append(max(0.0, kernel.end - max(kernel.start, ended)))
        ended = max(ended, kernel.end)
    return added, gaps


def rows_of(roles: Sequence[str], steps: Sequence[Sequence[Kernel]]) -> list[Row]:
    """Medians over steps, one row per role and kernel in the order of a step, then the gaps."""
    times = [added_times(step) for step in steps]
    totals: dict[tuple[str, str], list[float]] = {}
    for at, role in enumerate(roles):
        key = (role, short_name(steps[0][at].name))
        totals.setdefault(key, []).append(median(added[at] for added, _ in times))
    rows = [Row(role, name, len(parts), sum(parts)) for (role, name), parts in totals.items()]
    return [*rows, Row(GAPS, "", 0, median(gaps for _, gaps in times))]


def short_name(name: str) -> str:
    """The function's own name: no namespaces, no template arguments but where the name says nothing without them."""
    plain = name.removeprefix("void ")
    parts = [part.rpartition("::")[2] for part in re.findall(r"[A-Za-z_][\w:]*", plain)]
    return next((part for part in parts if part and part not in _GENERIC), plain)[:48]


def markdown(rows: Sequence[Row], num_layers: int) -> str:
    """A table with the time of a layer, where all layers have the role, and the share of the whole step."""
    total = sum(row.us for row in rows)
    lines = ["| role | kernel | calls | µs a layer | µs a step | share |", "|---|---|---|---|---|---|"]
    for row in rows:
        per_layer = f"{row.us / num_layers:.2f}" if row.role in LAYER_ROLES else ""
        calls = row.calls or ""
        lines.append(
            f"| {row.role} | {f'`{row.name}`' if row.name else ''} | {calls} | {per_layer} | {row.us:.1f} "
            f"| {row.us / total:.1%} |"
        )
    lines.append(f"| all | | {sum(row.calls for row in rows)} | | {total:.1f} | |")
    return "\n".join(lines)
