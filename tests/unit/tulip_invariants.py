"""What holds of a scheduler at any moment."""

from collections import Counter

from tulip_machine import CAPACITY, DIES, LIMITS, Machine

from rosebed.core.errors import DeadlineExceeded, Unavailable
from rosebed.core.types import Batch, Lane
from rosebed.tulip.cost import Cost

OUTPUT_BYTES_PER_SPAN = 4 * 8


def check_all(machine: Machine) -> None:
    """All that must hold after every operation."""
    if machine.engine.separate_lanes:
        assert all(machine.running(lane) <= 2 for lane in Lane)
    else:
        assert machine.scheduler.num_in_flight <= 2
    assert machine.engine.num_unreleased == machine.scheduler.num_in_flight
    for batch in machine.new_batches():
        _check_within_limits(batch)
    for lane in Lane:
        _check_first_come_first_served(machine, lane)
        _check_queue(machine, lane)
        _check_permits(machine, lane)
    _check_answers(machine)


def _check_within_limits(batch: Batch) -> None:
    num_spans = batch.layout.num_spans
    cost = Cost(batch.num_tokens, batch.num_sequences, num_spans, OUTPUT_BYTES_PER_SPAN * num_spans)
    assert batch.num_sequences == 1 or cost.fits(Cost.of_limits(LIMITS)._replace(tokens=LIMITS.stretched_tokens))


def _check_first_come_first_served(machine: Machine, lane: Lane) -> None:
    order = machine.first_runs(lane)
    assert order == sorted(order)


def _check_queue(machine: Machine, lane: Lane) -> None:
    queue = machine.scheduler.queue
    total = Cost()
    for state in queue.requests(lane):
        assert state.taken < len(state.sequences)
        assert not state.done
        total = total.plus(state.cost(state.taken, len(state.sequences)))
    assert queue.backlog(lane) == total


def _check_permits(machine: Machine, lane: Lane) -> None:
    held = machine.scheduler.admission.held(lane)
    assert held.sequences == sum(state.remaining for state in machine.submitted if state.lane is lane)
    assert held.fits(CAPACITY)
    assert min(held) >= 0


def _check_answers(machine: Machine) -> None:
    counts = Counter(machine.answered)
    assert all(count == 1 for count in counts.values())
    assert not machine.abandoned & counts.keys()
    for state in machine.new_answers():
        if state.failure is None:
            assert state.remaining == 0
            machine.check_rows(state)
        else:
            assert isinstance(state.failure, DeadlineExceeded) or (
                bool(machine.deaths) and isinstance(state.failure, Unavailable)
            )


def check_device_is_busy(machine: Machine) -> None:
    """What must hold right after a turn: the engine never idles while work is queued."""
    scheduler = machine.scheduler
    queued = {lane: scheduler.queue.backlog(lane) for lane in Lane}
    if any(cost.sequences for cost in queued.values()):
        assert scheduler.num_in_flight >= 1
    is_full = queued[Lane.ONLINE].fills(Cost.of_limits(LIMITS))
    if machine.engine.separate_lanes:
        if queued[Lane.ONLINE].sequences and not scheduler._bulk_starves(  # pyright: ignore[reportPrivateUsage]
            machine.clock_ns
        ):
            assert machine.running(Lane.ONLINE) >= 1 + is_full
    elif is_full and not queued[Lane.BULK].sequences:
        assert scheduler.num_in_flight == 2


def check_everything_ended(machine: Machine) -> None:
    """What must hold once all steps have ended."""
    check_all(machine)
    assert machine.scheduler.idle
    assert set(machine.answered) | machine.abandoned == set(machine.submitted)
    assert all(state.remaining == 0 for state in machine.submitted)
    assert all(machine.scheduler.admission.held(lane) == Cost() for lane in Lane)
    assert bool(machine.deaths) == any(DIES in sequence for batch in machine.batches for sequence in batch)
    assert len(machine.deaths) <= 1
