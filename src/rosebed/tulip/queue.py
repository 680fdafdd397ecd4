"""Requests with sequences still to run, first come first served in each lane. Every operation is O(1)."""

from collections import OrderedDict
from collections.abc import Iterable

from rosebed.core.types import Lane
from rosebed.tulip.cost import Cost
from rosebed.tulip.request import Portions, RequestState


class RequestQueue:
    """One line per lane; `RequestState.taken` says how much of a request has left it."""

    def __init__(self) -> None:
        # NOTE: an OrderedDict, since a dict whose first keys were deleted is slow to iterate from its start.
        self._lines: dict[Lane, OrderedDict[RequestState, None]] = {lane: OrderedDict() for lane in Lane}
        self._backlogs = {lane: Cost() for lane in Lane}
        self.bulk_last_ns = 0
        """When the latest bulk batch was taken or, since then, ended."""
        self.bulk_step_ns = 0
        """How long it kept the engine busy."""

    def backlog(self, lane: Lane) -> Cost:
        """What all queued sequences of `lane` cost."""
        return self._backlogs[lane]

    def num_requests(self, lane: Lane) -> int:
        return len(self._lines[lane])

    def requests(self, lane: Lane) -> Iterable[RequestState]:
        """Oldest first. Do not change the queue while iterating."""
        return self._lines[lane]

    def head(self, lane: Lane) -> RequestState | None:
        """The oldest request of `lane`."""
        return next(iter(self._lines[lane]), None)

    def append(self, state: RequestState) -> None:
        """All sequences of `state` join the end of its lane."""
        self._lines[state.lane][state] = None
        self._change(state.lane, state.cost(state.taken, len(state.sequences)), sign=1)

    def discard(self, state: RequestState) -> Cost:
        """Drop what is still queued of `state`; returns what that cost, nothing if there was none."""
        if state not in self._lines[state.lane]:
            return Cost()
        del self._lines[state.lane][state]
        cost = state.cost(state.taken, len(state.sequences))
        self._change(state.lane, cost, sign=-1)
        return cost

    def take(self, portions: Portions, now_ns: int) -> None:
        """The sequences of `portions`, which are the first of their lane, leave the queue."""
        for portion in portions:
            state = portion.state
            state.taken, state.taken_ns = portion.stop, now_ns
            self._change(state.lane, portion.cost, sign=-1)
            if portion.stop == len(state.sequences):
                del self._lines[state.lane][state]
            if state.lane is Lane.BULK:
                self.bulk_last_ns = now_ns

    def end_bulk(self, now_ns: int, elapsed_ns: int) -> None:
        """A bulk batch has ended, which kept the engine busy for so long."""
        self.bulk_last_ns, self.bulk_step_ns = now_ns, elapsed_ns

    def _change(self, lane: Lane, cost: Cost, *, sign: int) -> None:
        backlog = self._backlogs[lane]
        self._backlogs[lane] = backlog.plus(cost) if sign > 0 else backlog.minus(cost)
