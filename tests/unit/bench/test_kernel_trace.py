"""What `bench/kernels.py` makes of a profiler's trace."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def trace() -> ModuleType:
    sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
    try:
        import kernel_trace  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.pop(0)
    return kernel_trace


def _event(name: str, start: float, duration: float, category: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}


LAYER = ["linear", "attention", "linear_add_layer_norm", "linear_activation", "linear_add_layer_norm"]
MARKED = [
    ["_embed_layer_norm_kernel"],
    ["_small_linear_kernel"],
    ["_work_list_kernel", "_attention_kernel"],
    ["_small_linear_kernel", "_add_layer_norm_kernel"],
    ["nvjet_tst_64x8", "_bias_activation_kernel"],
    ["nvjet_tst_64x8", "_add_layer_norm_kernel"],
    ["_finalize_kernel"],
]
ROLES = [
    "embedding",
    "qkv product",
    "attention",
    "attention",
    "o product",
    "norm",
    "up/gate product",
    "activation",
    "down product",
    "norm",
    "head",
]


def test_every_kernel_of_a_marked_step_gets_its_role(trace: ModuleType) -> None:
    recorder = trace.RoleRecorder()
    for operation in ["embed_layer_norm", *LAYER]:
        recorder.note(operation)
    names = [name for group in MARKED for name in [*group, "void at::cuda::(anonymous namespace)::spin_kernel(long)"]]
    events = [_event(name, start, 0.5) for start, name in enumerate(names[:-1])]
    events += [_event("Memcpy HtoD", 0, 1, "gpu_memcpy"), {"ph": "M", "name": "process_name"}]
    kernels = trace.kernels_in({"traceEvents": events[::-1]})
    named = trace.roles_of(kernels, recorder.roles)
    assert [role for role, _ in named] == ROLES
    with pytest.raises(ValueError, match="6 markers in the trace, 5 operations"):
        trace.roles_of(kernels, recorder.roles[:-1])


def test_times_are_what_each_kernel_adds_and_make_up_the_step(trace: ModuleType) -> None:
    step = [trace.Kernel("a", 0, 10), trace.Kernel("b", 8, 14), trace.Kernel("c", 9, 12), trace.Kernel("d", 20, 25)]
    assert trace.added_times(step) == ([10, 4, 0, 5], 6)
    later = [trace.Kernel(kernel.name, kernel.start + 100, kernel.end + 102) for kernel in step]
    steps = trace.split_steps([*step, *later], 2)
    rows = trace.rows_of(["norm", "qkv product", "norm", "norm"], steps)
    assert [(row.role, row.name, row.calls, row.us) for row in rows] == [
        ("norm", "a", 1, 11),
        ("qkv product", "b", 1, 4),
        ("norm", "c", 1, 0),
        ("norm", "d", 1, 6),
        ("gaps", "", 0, 5),
    ]
    with pytest.raises(ValueError, match="4 kernels in 3 steps"):
        trace.split_steps(step, 3)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_small_linear_kernel", "_small_linear_kernel"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<A, B> >(T1::Params)", "FlashAttnFwdSm90"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*, char*)", "vectorized_gather_kernel"),
    ],
)
def test_names_are_shortened(trace: ModuleType, name: str, short: str) -> None:
    assert trace.short_name(name) == short


def test_the_table_has_a_layers_share(trace: ModuleType) -> None:
    rows = [trace.Row("norm", "_rms_norm_kernel", 24, 48.0), trace.Row("head", "_pool_kernel", 1, 2.0)]
    assert trace.markdown(rows, 24).splitlines()[2:] == [
        "| norm | `_rms_norm_kernel` | 24 | 2.00 | 48.0 | 96.0% |",
        "| head | `_pool_kernel` | 1 |  | 2.0 | 4.0% |",
        "| all | | 25 | | 50.0 | |",
    ]
