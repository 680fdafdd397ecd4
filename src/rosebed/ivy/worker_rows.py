"""One row of numbers per worker process, which any worker can add up. Knows no metric.

A row is a small mapped file, locked by the worker that writes it. The lock dies with its process, so that a worker
started in place of a dead one takes over its row and the totals never go back.
"""

import fcntl
import mmap
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

NUMBER_BYTES = 8
"""Rows hold float64."""


class WorkerRows:
    """The row of this worker, and the sum over all workers."""

    def __init__(self, num_columns: int, folder: Path | None = None) -> None:
        """`folder` is shared by the workers of one server; None keeps the row to this process."""
        self._num_columns = num_columns
        self._folder = folder
        # The open file holds the lock, so it is kept as long as the row.
        self._lock_fd, mapped = (-1, mmap.mmap(-1, self._num_bytes)) if folder is None else self._claim(folder)
        self.own = memoryview(mapped).cast("d")
        """float64[num_columns], written by this worker only."""

    @property
    def _num_bytes(self) -> int:
        return self._num_columns * NUMBER_BYTES

    def _claim(self, folder: Path) -> tuple[int, mmap.mmap]:
        for number in count():
            fd = os.open(folder / f"worker-{number}", os.O_RDWR | os.O_CREAT, 0o600)
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, self._num_bytes)
                return fd, mmap.mmap(fd, self._num_bytes)
            os.close(fd)
        raise AssertionError("count() does not end")

    def total(self) -> npt.NDArray[np.float64]:
        """float64[num_columns]: the sum of all workers' rows, those of dead ones included."""
        if self._folder is None:
            return np.array(self.own)
        rows = [np.fromfile(path, np.float64) for path in sorted(self._folder.glob("worker-*"))]
        return np.sum([row for row in rows if len(row) == self._num_columns], axis=0)
