"""What runs next. Pure: looks at the queue and the time it is given, changes nothing.

A batch is of one lane, since an engine may run the lanes on streams of different priority. Online goes first. Bulk
never starves: once the oldest bulk request has waited for `bulk_wait_ns`, and for `BULK_REST` times what the last bulk
batch took, without any bulk batch running, the next batch is bulk's, whatever is queued online.
"""

from typing import NamedTuple

from rosebed.core.engine import BatchLimits
from rosebed.core.types import Lane
from rosebed.tulip.cost import Cost
from rosebed.tulip.queue import RequestQueue
from rosebed.tulip.request import Portion, Portions, RequestState

BULK_REST = 3
"""While online work is queued, bulk waits for so many times what its last batch took: where a step lasts longer than
`bulk_wait_ns`, as on a CPU, it would be due again whenever it ended."""


class Selection(NamedTuple):
    """What `take_batch` found."""

    portions: Portions
    """What to run, in the order it was queued; empty if nothing is left to run."""
    expired: tuple[RequestState, ...]
    """Requests passed on the way whose deadline is over."""


def next_lane(queue: RequestQueue, now_ns: int, *, bulk_wait_ns: int) -> Lane | None:
    """The lane of the next batch; None if nothing is queued."""
    bulk = queue.head(Lane.BULK)
    if queue.head(Lane.ONLINE) is None:
        return None if bulk is None else Lane.BULK
    wait_ns = max(bulk_wait_ns, BULK_REST * queue.bulk_step_ns)
    if bulk is not None and now_ns - max(bulk.arrived_ns, queue.bulk_last_ns) >= wait_ns:
        return Lane.BULK
    return Lane.ONLINE


def take_batch(queue: RequestQueue, limits: BatchLimits, now_ns: int, *, lane: Lane) -> Selection:
    """The first sequences of `lane` that stay within `limits`; one that exceeds them by itself runs alone.

    A request that does not fit whole is split: the rest of it is first in line for the next batch.
    """
    backlog = queue.backlog(lane)
    if queue.num_requests(lane) == 1 and (alone := _alone(queue, backlog, limits, now_ns, lane)):
        return alone
    room = Cost.of_limits(limits)._replace(tokens=_share(backlog.tokens, limits))
    portions: list[Portion] = []
    expired: list[RequestState] = []
    for state in queue.requests(lane):
        if state.deadline_ns <= now_ns:
            expired.append(state)
            continue
        stop = state.fitting(room)
        if stop == state.taken and not portions:
            stop += 1
        portion = Portion(state, state.taken, stop)
        if not portion.num_sequences:
            break
        portions.append(portion)
        room = room.minus(portion.cost)
        if stop < len(state.sequences) or min(room) <= 0:
            break
    return Selection(tuple(portions), tuple(expired))


def _alone(queue: RequestQueue, backlog: Cost, limits: BatchLimits, now_ns: int, lane: Lane) -> Selection | None:
    """All of the only request queued, if it fits: as going through the queue would find, in half of the time."""
    state = queue.head(lane)
    if state is None or state.deadline_ns <= now_ns or not backlog.fits(Cost.of_limits(limits)):
        return None
    return Selection((Portion(state, state.taken, len(state.sequences)),), ())


def _share(queued_tokens: int, limits: BatchLimits) -> int:
    """Tokens for the next batch: the budget, or somewhat more where what is queued then makes one batch fewer.

    12,800 tokens under a budget of 6144 are two batches of 6400, not three of which the last computes 512: a small step
    takes nearly as long as one of four times its tokens.
    """
    num_full = queued_tokens // limits.tokens
    share = -(-queued_tokens // max(1, num_full))
    return share if limits.tokens < share <= limits.stretched_tokens else limits.tokens
