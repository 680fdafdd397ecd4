"""`take_batch` and the queue it looks at."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.engine import BatchLimits
from rosebed.core.types import Lane
from rosebed.testing import fake_info, fake_sequence
from rosebed.tulip.batcher import next_lane, take_batch
from rosebed.tulip.cost import Cost
from rosebed.tulip.failures import halves, num_sequences, one_by_one
from rosebed.tulip.queue import RequestQueue
from rosebed.tulip.request import NEVER, Portion, RequestState

SPECS = fake_info().outputs
LIMITS = BatchLimits(tokens=10, sequences=4, spans=4, output_bytes=4 * 32)


def _request(*lengths: int, lane: Lane = Lane.ONLINE, arrived_ns: int = 0, deadline_ns: int = NEVER) -> RequestState:
    return RequestState(
        tuple(fake_sequence(range(length)) for length in lengths),
        SPECS,
        lane=lane,
        arrived_ns=arrived_ns,
        deadline_ns=deadline_ns,
        on_done=lambda _state: None,
    )


def _queue(*states: RequestState) -> RequestQueue:
    queue = RequestQueue()
    for state in states:
        queue.append(state)
    return queue


def test_sequences_are_taken_until_one_does_not_fit() -> None:
    first, second, third = _request(4), _request(5, 2), _request(1)
    selection = take_batch(_queue(first, second, third), LIMITS, 0, lane=Lane.ONLINE)
    # The third would fit, but the second's rest was there before it.
    assert selection.portions == (Portion(first, 0, 1), Portion(second, 0, 1))


def test_each_limit_counts() -> None:
    for limits in (
        BatchLimits(tokens=3, sequences=9, spans=9, output_bytes=999),
        BatchLimits(tokens=99, sequences=3, spans=9, output_bytes=999),
        BatchLimits(tokens=99, sequences=9, spans=3, output_bytes=999),
        BatchLimits(tokens=99, sequences=9, spans=9, output_bytes=3 * 32 + 31),
    ):
        selection = take_batch(_queue(_request(1, 1), _request(1, 1, 1)), limits, 0, lane=Lane.ONLINE)
        assert num_sequences(selection.portions) == 3


def _token_counts(queue: RequestQueue, limits: BatchLimits) -> list[int]:
    """Tokens of each batch until the queue is empty."""
    counts: list[int] = []
    while portions := take_batch(queue, limits, 0, lane=Lane.ONLINE).portions:
        queue.take(portions, 0)
        counts.append(sum(portion.cost.tokens for portion in portions))
    return counts


def test_a_batch_stretches_rather_than_leave_a_small_rest() -> None:
    limits = BatchLimits(tokens=6144, sequences=999, spans=999, output_bytes=1 << 20, stretched_tokens=8192)
    for length, counts in {
        5: [2560],
        12: [6144],
        13: [6656],
        16: [8192],
        17: [6144, 2560],
        25: [6144, 6656],
        50: [6144, 6144, 6656, 6656],
    }.items():
        assert _token_counts(_queue(_request(*[512] * length)), limits) == counts
        assert _token_counts(_queue(*[_request(512) for _ in range(length)]), limits) == counts


def test_a_batch_does_not_stretch_where_the_limits_do_not_say_so() -> None:
    assert _token_counts(_queue(_request(4, 4, 4)), LIMITS) == [8, 4]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    budget=st.integers(1, 20),
    stretch=st.integers(0, 20),
)
def test_stretching_keeps_to_its_bound_and_never_takes_more_batches(
    lengths: list[int], budget: int, stretch: int
) -> None:
    plain = BatchLimits(tokens=budget, sequences=99, spans=99, output_bytes=1 << 20)
    limits = replace(plain, stretched_tokens=budget + stretch)
    counts = _token_counts(_queue(_request(*lengths)), limits)
    assert sum(counts) == sum(lengths)
    assert max(counts) <= max(budget + stretch, *lengths)
    assert len(counts) <= len(_token_counts(_queue(_request(*lengths)), plain))


def test_taking_changes_nothing_until_it_is_told_to_the_queue() -> None:
    state = _request(6, 6, 6)
    queue = _queue(state)
    for _ in range(2):
        assert take_batch(queue, LIMITS, 0, lane=Lane.ONLINE).portions == (Portion(state, 0, 1),)
    queue.take((Portion(state, 0, 1),), 5)
    assert queue.backlog(Lane.ONLINE) == Cost(12, 2, 2, 64)
    assert take_batch(queue, LIMITS, 0, lane=Lane.ONLINE).portions == (Portion(state, 1, 2),)
    queue.take((Portion(state, 1, 2),), 6)
    queue.take((Portion(state, 2, 3),), 7)
    assert queue.num_requests(Lane.ONLINE) == 0
    assert state.taken_ns == 7


def test_expired_requests_are_passed_over_and_reported() -> None:
    late, on_time = _request(1, deadline_ns=5), _request(2, deadline_ns=6)
    selection = take_batch(_queue(late, on_time), LIMITS, 5, lane=Lane.ONLINE)
    assert selection.expired == (late,)
    assert selection.portions == (Portion(on_time, 0, 1),)


def test_discarding_is_idempotent() -> None:
    state, other = _request(3, 4), _request(5)
    queue = _queue(state, other)
    queue.take((Portion(state, 0, 1),), 0)
    assert queue.discard(state) == Cost(4, 1, 1, 32)
    assert queue.discard(state) == Cost()
    assert queue.backlog(Lane.ONLINE) == Cost(5, 1, 1, 32)
    assert list(queue.requests(Lane.ONLINE)) == [other]


def test_the_lane_of_the_next_batch() -> None:
    wait = {"bulk_wait_ns": 100}
    assert next_lane(_queue(), 0, **wait) is None
    bulk = _request(1, lane=Lane.BULK, arrived_ns=50)
    assert next_lane(_queue(bulk), 50, **wait) is Lane.BULK
    queue = _queue(bulk, _request(1), _request(1, lane=Lane.BULK, arrived_ns=50))
    assert next_lane(queue, 149, **wait) is Lane.ONLINE
    assert next_lane(queue, 150, **wait) is Lane.BULK
    queue.take((Portion(bulk, 0, 1),), 150)
    assert next_lane(queue, 249, **wait) is Lane.ONLINE
    assert next_lane(queue, 250, **wait) is Lane.BULK
    queue.end_bulk(240, elapsed_ns=90)  # three times as long is more than the wait
    assert next_lane(queue, 509, **wait) is Lane.ONLINE
    assert next_lane(queue, 510, **wait) is Lane.BULK


@given(
    lengths=st.lists(st.lists(st.integers(1, 14), min_size=1, max_size=6), min_size=1, max_size=6),
    tokens=st.integers(1, 20),
    sequences=st.integers(1, 6),
)
def test_a_batch_is_the_longest_prefix_that_fits(lengths: list[list[int]], tokens: int, sequences: int) -> None:
    limits = BatchLimits(tokens=tokens, sequences=sequences, spans=99, output_bytes=9999)
    states = [_request(*own) for own in lengths]
    taken = one_by_one(take_batch(_queue(*states), limits, 0, lane=Lane.ONLINE).portions)
    line = [(state, index) for state, own in zip(states, lengths, strict=True) for index in range(len(own))]
    assert [(portion.state, portion.first) for portion in taken] == line[: len(taken)]
    costs = [state.sequences[index].num_tokens for state, index in line]
    assert len(taken) == 1 or sum(costs[: len(taken)]) <= tokens
    longer = costs[: len(taken) + 1]
    assert len(longer) == len(taken) or len(longer) > sequences or sum(longer) > tokens


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda counts: sum(counts) > 1))
def test_halves_keep_order_and_lose_nothing(counts: list[int]) -> None:
    portions = tuple(Portion(_request(*[1] * count), 0, count) for count in counts)
    left, right = halves(portions)
    assert one_by_one((*left, *right)) == one_by_one(portions)
    assert num_sequences(left) == sum(counts) // 2
    assert num_sequences(right) >= 1
