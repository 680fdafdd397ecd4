"""A step's result behind one CUDA event: page-locked memory that an asynchronous copy fills."""

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from rosebed.core.errors import Unavailable
from rosebed.core.outputs import OutputLayout, RowStatus, StepResult
from rosebed.core.types import Int32Array, OutputKind
from rosebed.rose.cuda.driver import event_handle
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.staging import InputViews, input_views


class RingEntry:
    """Host memory and events of one step in flight. Only host memory is ringed: the device side is ordered by its
    stream."""

    def __init__(
        self, number: int, max_words: int, max_bytes: int, *, has_token_types: bool, stream: torch.cuda.Stream
    ) -> None:
        self.number = number
        self._words = torch.zeros(max_words, dtype=torch.int32, pin_memory=True)  # what is copied in
        self._views: dict[GraphKey, InputViews[Int32Array]] = {}
        self._has_token_types = has_token_types
        self.out_tensor = torch.zeros(max_bytes, dtype=torch.uint8, pin_memory=True)
        """uint8[max_bytes], page-locked: what is copied out."""
        self.out: npt.NDArray[np.uint8] = self.out_tensor.numpy()
        """The same memory."""
        self.words_address = self._words.data_ptr()
        self.out_address = self.out_tensor.data_ptr()
        self.begun = torch.cuda.Event(enable_timing=True)
        self.done = torch.cuda.Event(enable_timing=True)
        for event in (self.begun, self.done):
            event.record(stream)
        self.begun_handle, self.done_handle = event_handle(self.begun), event_handle(self.done)

    def views(self, key: GraphKey) -> InputViews[Int32Array]:
        """The input block, divided as `key` wants it."""
        views = self._views.get(key)
        if views is None:
            words: Int32Array = self._words.numpy()
            views = self._views[key] = input_views(words, key, has_token_types=self._has_token_types)
        return views


class Ring:
    """Entries not in use. Tulip keeps at most `max_in_flight` steps unreleased, so it never runs dry."""

    def __init__(self, entries: list[RingEntry]) -> None:
        self._free = deque(entries)
        self._size = len(entries)

    @property
    def all_free(self) -> bool:
        """Whether no step is in flight."""
        return len(self._free) == self._size

    def acquire(self) -> RingEntry:
        """RuntimeError if every entry is in use: the caller has stepped ahead without releasing."""
        if not self._free:
            raise RuntimeError("step() with all results unreleased: release one first")
        return self._free.popleft()

    def give_back(self, entry: RingEntry) -> None:
        self._free.append(entry)


def device_lost(error: BaseException) -> Unavailable:
    """What a CUDA error means: the context is gone with it, so nothing more can be computed in this process."""
    return Unavailable(f"the GPU cannot compute any more: {error}")


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
        try:
            return self._entry.done.query()
        except torch.AcceleratorError as error:
            raise device_lost(error) from error

    def result(self) -> StepResult:
        if self._result is None:
            try:
                self._entry.done.synchronize()
            except torch.AcceleratorError as error:
                raise device_lost(error) from error
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
        finite = buffer[: len(self._row_owners)]
        not_finite = () if finite.all() else self._row_owners[finite == 0]
        status = buffer[: self._layout.num_sequences]
        status[:] = RowStatus.OK
        if len(not_finite):
            status[not_finite] = RowStatus.NON_FINITE
        device_ns = int(self._entry.begun.elapsed_time(self._entry.done) * 1e6)
        result = StepResult(layout=self._layout, buffer=buffer, device_ns=device_ns)
        for kind, slot in self._layout.slots.items():
            if kind is not OutputKind.DENSE:  # the dense flags came with the graph
                bad = np.flatnonzero(~np.isfinite(result.output(kind)).all(axis=1))
                status[np.searchsorted(slot.row_starts, bad, side="right") - 1] = RowStatus.NON_FINITE
        return result
