"""The steps that an engine works on: one line of them for each of its execution slots. Pure bookkeeping."""

from collections import deque
from dataclasses import dataclass

from rosebed.core.engine import LazyTensor
from rosebed.core.types import Lane
from rosebed.tulip.request import Portions


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """A batch that the engine works on."""

    portions: Portions
    lazy: LazyTensor
    num_tokens: int
    predicted_ns: float
    started_ns: int
    """When it was enqueued, or the step before it ended: since then the device has worked on this one."""
    overlapped: bool = False
    """Whether the other slot had steps too meanwhile: then its time says only that it takes no longer alone."""


class Slot:
    """The steps of one execution slot, oldest first, and what is to run there again."""

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self.steps: deque[Step] = deque()
        self.retries: deque[Portions] = deque()
        """Each of one lane."""

    @property
    def has_room(self) -> bool:
        """Whether another step may be enqueued."""
        return len(self.steps) < self._max_steps

    @property
    def is_done(self) -> bool:
        """Whether it has steps, and all of them have ended."""
        return bool(self.steps) and self.steps[-1].lazy.ready()

    def oldest(self) -> Step | None:
        """The step the engine works on now. Safe to call from any thread."""
        try:
            return self.steps[0]
        except IndexError:
            return None

    def remaining_ns(self, now_ns: int) -> float:
        """Predicted time until its steps have ended; negative once they should have."""
        if not self.steps:
            return 0.0
        return sum(step.predicted_ns for step in self.steps) - (now_ns - self.steps[0].started_ns)

    def overdue_ns(self, now_ns: int) -> float:
        """How much longer than predicted the oldest step has been running; negative before, and without any."""
        if not self.steps:
            return -1.0
        return now_ns - self.steps[0].started_ns - self.steps[0].predicted_ns

    def end(self, now_ns: int) -> int:
        """The oldest step is over, one way or the other; returns how long the engine worked on it, in ns."""
        step = self.steps.popleft()
        if self.steps:
            self.steps[0].started_ns = now_ns
        return now_ns - step.started_ns


class Slots:
    """The slots of an engine, by lane."""

    def __init__(self, max_steps: int, *, separate: bool) -> None:
        """`max_steps` at once in each; lanes that are not `separate` share one."""
        online = Slot(max_steps)
        self._by_lane = {Lane.ONLINE: online, Lane.BULK: Slot(max_steps) if separate else online}
        self.all = tuple(dict.fromkeys(self._by_lane.values()))
        """Each once, the online lane's first."""

    @property
    def separate(self) -> bool:
        return len(self.all) > 1

    @property
    def num_steps(self) -> int:
        """Steps enqueued and not yet known to be done."""
        return sum(len(slot.steps) for slot in self.all)

    def of(self, lane: Lane) -> Slot:
        return self._by_lane[lane]

    def append(self, lane: Lane, step: Step) -> None:
        """`step` was enqueued."""
        own = self.of(lane)
        for slot in self.all:
            if slot is not own and slot.steps:
                step.overlapped = True
                for other in slot.steps:
                    other.overlapped = True
        own.steps.append(step)

    def remaining_ns(self, now_ns: int) -> float:
        """Predicted time until the device has nothing to do, if what is overdue in one slot ends now."""
        if not self.separate:
            return self.all[0].remaining_ns(now_ns)
        return sum(max(0.0, slot.remaining_ns(now_ns)) for slot in self.all)
