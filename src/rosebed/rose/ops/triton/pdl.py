"""Programmatic dependent launch and L2 prefetch, as device functions.

Source: CUDA programming guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA `griddepcontrol`,
`prefetch`. Both vanish where `PDL` is false, so kernels run on any chip and in Triton's interpreter.
"""

import triton
import triton.language as tl
from triton.language.extra import cuda as tl_cuda


@triton.jit
def prefetch_rows(base, rows, row_stride, columns: tl.constexpr, COLUMNS_POW2: tl.constexpr):
    """Ask for `columns` bf16 values of each row, from `base` on, to be brought into L2 (one request per 128 bytes)."""
    lines = tl.minimum(tl.arange(0, COLUMNS_POW2 // 64) * 64, columns - 64)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [base + rows[:, None] * row_stride + lines[None, :]],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def wait_for_predecessor(PDL: tl.constexpr):
    """Let the successor kernel start, then wait until everything the predecessors wrote is visible."""
    if PDL:
        tl_cuda.gdc_launch_dependents()
        tl_cuda.gdc_wait()
