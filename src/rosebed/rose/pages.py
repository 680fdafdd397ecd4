"""What the CPU engine asks of the C library and of Linux about memory. Elsewhere nothing happens: it is speed alone."""

import ctypes
import logging
import platform
from collections.abc import Iterable

_logger = logging.getLogger(__name__)

HUGE_PAGE = 2 << 20
"""Bytes. Of x86-64 and most of ARM; where pages differ, the system refuses and nothing is lost."""
KEPT_BYTES = 256 << 20
"""Freed memory that a heap keeps."""
MOST_FROM_HEAP = 32 << 20
"""Bytes of the largest block that a heap gives; glibc takes no more. Larger ones are mapped, and freed as such."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25


def keep_freed_memory() -> None:
    """Let the C library reuse what a step frees in the next one. Given back to the system it would have to be cleared
    anew, a page at a time: up to a tenth of a step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, MOST_FROM_HEAP)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def use_huge_pages(blocks: Iterable[tuple[int, int]]) -> int:
    """Move memory that is in use, given as (address, bytes) each, into huge pages; returns how many of those it took.

    Reading all weights for a few tokens, a processor waits for addresses a tenth of the time otherwise.
    """
    if platform.system() != "Linux":
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    # Small blocks share pages with their neighbours, which move along.
    pages = {
        page for address, size in blocks for page in range(address // HUGE_PAGE, -(-(address + size) // HUGE_PAGE))
    }
    moved = 0
    for page in sorted(pages):
        place = (page * HUGE_PAGE, HUGE_PAGE)
        moved += madvise(*place, _MADV_HUGEPAGE) == 0 and madvise(*place, _MADV_COLLAPSE) == 0
    _logger.debug("%d of %d pieces of memory are huge pages now", moved, len(pages))
    return moved
