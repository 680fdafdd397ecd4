"""How much work may wait. A permit is taken for every sequence on arrival and given back once, when it is finished."""

import math

from rosebed.core.errors import Overloaded, PayloadTooLarge
from rosebed.core.types import Lane
from rosebed.tulip.cost import Cost

MAX_RETRY_AFTER_S = 60


class Admission:
    """Permits of each lane; the lanes do not share, so that bulk work cannot shut online work out."""

    def __init__(self, capacity: Cost) -> None:
        self._capacity = capacity
        self._held = {lane: Cost() for lane in Lane}

    def held(self, lane: Lane) -> Cost:
        """What the admitted, unfinished sequences of `lane` cost."""
        return self._held[lane]

    def acquire(self, lane: Lane, cost: Cost, *, tokens_per_s: float) -> None:
        """Take permits for `cost`.

        PayloadTooLarge if even an empty queue could not hold it. Overloaded if the queue cannot hold it now, to be
        tried again when, at `tokens_per_s`, half of what is held will be done.
        """
        if not cost.fits(self._capacity):
            quantity = cost.excess(self._capacity)
            raise too_much(getattr(cost, quantity), quantity, getattr(self._capacity, quantity))
        held = self._held[lane].plus(cost)
        if not held.fits(self._capacity):
            quantity = held.excess(self._capacity)
            raise Overloaded(
                f"the queue is full: {getattr(self._held[lane], quantity)} {quantity} are waiting",
                retry_after_s=_retry_after_s(self._held[lane].tokens / 2, tokens_per_s),
            )
        self._held[lane] = held

    def release(self, lane: Lane, cost: Cost) -> None:
        """Give permits back."""
        self._held[lane] = self._held[lane].minus(cost)


def too_much(asked: int, quantity: str, most: int) -> PayloadTooLarge:
    """The refusal of what even an empty queue could not hold; names the option that would let it in."""
    option = f"--max-queued-{quantity.replace('_', '-')}"
    return PayloadTooLarge(f"the request holds {asked} {quantity}, this server queues at most {most} ({option})")


def _retry_after_s(tokens: float, tokens_per_s: float) -> int:
    if tokens_per_s <= 0:
        return 1
    return min(MAX_RETRY_AFTER_S, max(1, math.ceil(tokens / tokens_per_s)))
