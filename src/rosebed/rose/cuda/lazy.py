"""A step's result behind one CUDA event: page-locked memory that an asynchronous copy fills."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rosebed.core.errors import StepFailed
from rosebed.core.outputs import OutputLayout, RowStatus, StepResult
from rosebed.core.types import Int32Array, OutputKind
from rosebed.rose.cuda.staging import pinned


@dataclass(frozen=True, slots=True, eq=False)
class RingEntry:
    """Host memory and events of one step in flight. Only host memory is ringed: the device side is ordered by its
    stream."""

    words_tensor: Tensor
    """int32[max_words], page-locked: what is copied in."""
    words: Int32Array
    """The same memory."""
    out_tensor: Tensor
    """uint8[max_bytes], page-locked: what is copied out."""
    out: npt.NDArray[np.uint8]
    """The same memory."""
    begun: torch.cuda.Event
    done: torch.cuda.Event

    @classmethod
    def allocate(cls, max_words: int, max_bytes: int) -> "RingEntry":
        words_tensor, words = pinned(max_words, torch.int32)
        out_tensor, out = pinned(max_bytes, torch.uint8)
        return cls(
            words_tensor,
            words,
            out_tensor,
            out,
            torch.cuda.Event(enable_timing=True),
            torch.cuda.Event(enable_timing=True),
        )


class Ring:
    """Entries not in use. Tulip keeps at most `max_in_flight` steps unreleased, so it never runs dry."""

    def __init__(self, entries: list[RingEntry]) -> None:
        self._free = deque(entries)

    def acquire(self) -> RingEntry:
        """RuntimeError if every entry is in use: the caller has stepped ahead without releasing."""
        if not self._free:
            raise RuntimeError("step() with all results unreleased: release one first")
        return self._free.popleft()

    def give_back(self, entry: RingEntry) -> None:
        self._free.append(entry)


class EventTensor:
    """`LazyTensor` over one event. Used from one thread."""

    def __init__(
        self, entry: RingEntry, layout: OutputLayout, row_owners: Int32Array, release: Callable[[], None]
    ) -> None:
        self._entry = entry
        self._layout = layout
        self._row_owners = row_owners
        self._release: Callable[[], None] | None = release
        self._result: StepResult | None = None

    def ready(self) -> bool:
        return self._entry.done.query()

    def result(self) -> StepResult:
        if self._result is None:
            try:
                self._entry.done.synchronize()
            except RuntimeError as error:
                raise StepFailed(f"the CUDA step failed: {error}") from error
            self._result = self._read()
        return self._result

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def add_done_callback(self, callback: Callable[[], None]) -> None:  # noqa: ARG002  (the protocol's name)
        raise RuntimeError("CUDA steps are polled: see Engine.completion")

    def _read(self) -> StepResult:
        buffer = self._entry.out[: self._layout.num_bytes]
        finite = buffer[: len(self._row_owners)].astype(np.bool_)
        status = buffer[: self._layout.num_sequences]
        status[:] = RowStatus.OK
        status[self._row_owners[~finite]] = RowStatus.NON_FINITE
        device_ns = int(self._entry.begun.elapsed_time(self._entry.done) * 1e6)
        result = StepResult(layout=self._layout, buffer=buffer, device_ns=device_ns)
        for kind, slot in self._layout.slots.items():
            if kind is not OutputKind.DENSE:  # the dense flags came with the graph
                bad = np.flatnonzero(~np.isfinite(result.output(kind)).all(axis=1))
                status[np.searchsorted(slot.row_starts, bad, side="right") - 1] = RowStatus.NON_FINITE
        return result
