"""All replicas as one: picks by outstanding tokens, splits large requests, joins answers, asks again once."""

import asyncio
import functools
import re
from collections.abc import Callable, Iterable
from collections.abc import Sequence as AnySequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from rosebed.core.errors import RequestError, RosebedError, Unavailable, error_from_code, mapping_of
from rosebed.core.retelling import retold
from rosebed.core.types import Float32Array, Lane, Sequence
from rosebed.ivy.upstream.address import Address
from rosebed.ivy.upstream.replica import Accept, Replica
from rosebed.ivy.upstream.shares import MessageLimits, Share, split
from rosebed.proto.codec import ReplyRows

MAX_SHARES_IN_FLIGHT = 4
"""Of one request, per replica: enough to keep it busy, too few to fill its queue."""
FIRST_CONNECTION_S = 5.0
"""A worker just started takes requests while it connects: they wait this long at most."""

_SEQUENCE = re.compile(r"\bsequences\[(\d+)\]")


class JoinedRows(NamedTuple):
    """What all replicas made of one request."""

    rows: list[Float32Array]
    """Each sequence's rows of the one output wanted, float32[num_rows, dim], in order."""
    queue_ns: int
    """The longest that a share waited at its replica."""
    compute_ns: int
    """The longest that one was computed."""


class Balancer:
    """The replicas of one worker."""

    def __init__(
        self,
        targets: AnySequence[str],
        accept: Accept,
        on_retry: Callable[[], None],
        *,
        resolve_every_s: float = 30.0,
    ) -> None:
        """`on_retry` is called for each share of a request sent again because a replica went away."""
        self._was_ready = asyncio.Event()
        self._accept = accept
        self._on_retry = on_retry
        self.replicas: tuple[Replica, ...] = ()
        """Those that may be asked once they are ready."""
        self.addresses = tuple(
            Address(target, self._replica, self._gather, resolve_every_s=resolve_every_s) for target in targets
        )
        """What is behind each of `targets`."""
        self._gather()

    def _replica(self, address: str, on_lost: Callable[[], None]) -> Replica:
        return Replica(address, self._accept, on_ready=self._was_ready.set, on_lost=on_lost)

    def _gather(self) -> None:
        self.replicas = tuple(replica for address in self.addresses for replica in address.replicas.values())

    @property
    def ready(self) -> list[Replica]:
        """The replicas that can be asked now."""
        return [replica for replica in self.replicas if replica.ready]

    async def run(self) -> None:
        """Keep every replica connected until cancelled."""
        async with asyncio.TaskGroup() as group:
            for address in self.addresses:
                group.create_task(address.run())

    async def await_first(self) -> None:
        """Return once a replica has ever been ready, or when FIRST_CONNECTION_S are over."""
        if not self._was_ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_CONNECTION_S):
                    await self._was_ready.wait()

    async def embed(self, sequences: AnySequence[Sequence], lane: Lane) -> list[Float32Array]:
        """Each sequence's rows, in order. Raises as `compute` does."""
        return (await self.compute(sequences, lane)).rows

    async def compute(self, sequences: AnySequence[Sequence], lane: Lane) -> JoinedRows:
        """Each sequence's rows of the one output that all of them want, and how long they took.

        Unavailable if no replica is ready; a replica's refusal as it is; for sequences that failed, the error of the
        first one, naming it.
        """
        ready = self.ready
        if not ready:
            raise Unavailable("no inference server is ready")
        shares = split(
            [len(sequence.token_ids) for sequence in sequences],
            [replica.outstanding_tokens for replica in ready],
            _limits(ready),
        )
        if len(shares) == 1:
            return joined((await self._ask(ready[shares[0].replica], shares[0], sequences, lane),))
        windows = [asyncio.Semaphore(MAX_SHARES_IN_FLIGHT) for _ in ready]

        async def ask(share: Share) -> ReplyRows:
            async with windows[share.replica]:
                return await self._ask(ready[share.replica], share, sequences[share.start : share.stop], lane)

        tasks = [asyncio.create_task(ask(share)) for share in shares]
        try:
            return joined(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # one share was refused, or the client left: the others are not wanted either

    async def _ask(self, replica: Replica, share: Share, sequences: AnySequence[Sequence], lane: Lane) -> ReplyRows:
        try:
            return await self._ask_twice(replica, sequences, lane)
        except RequestError as refusal:
            raise _shifted(refusal, share.start) from refusal

    async def _ask_twice(self, replica: Replica, sequences: AnySequence[Sequence], lane: Lane) -> ReplyRows:
        try:
            return await replica.request(sequences, lane)
        except Unavailable:  # it went away, or takes nothing now; a second replica may be better off
            others = [other for other in self.ready if other is not replica]
            if not others:
                raise
            self._on_retry()
            return await min(others, key=lambda other: other.outstanding_tokens).request(sequences, lane)


def _limits(replicas: AnySequence[Replica]) -> MessageLimits:
    """What all of them take."""
    if len(replicas) == 1:
        return replicas[0].limits
    return functools.reduce(MessageLimits.smallest, [replica.limits for replica in replicas])


def joined(replies: AnySequence[ReplyRows]) -> JoinedRows:
    """All shares as one; raises what `join` does."""
    rows = join(replies)
    if len(replies) == 1:
        timings = replies[0].timings
        return JoinedRows(rows, timings.queue_ns, timings.compute_ns)
    return JoinedRows(
        rows=rows,
        queue_ns=max(reply.timings.queue_ns for reply in replies),
        compute_ns=max(reply.timings.compute_ns for reply in replies),
    )


def join(replies: Iterable[ReplyRows]) -> list[Float32Array]:
    """The rows of all shares, in order. Raises the first sequence's error, counted over all of them."""
    rows: list[Float32Array] = []
    for reply in replies:
        if reply.errors:
            index = min(reply.errors)
            raise _named(reply.errors[index], len(rows) + index)
        ((kind, starts),) = reply.row_starts.items()
        all_rows = reply.outputs[kind]
        rows += [all_rows] if len(starts) == 2 else [all_rows[start:stop] for start, stop in pairwise(starts)]
    return rows


def _shifted(refusal: RequestError, start: int) -> RosebedError:
    """A share's refusal in the client's words: `sequences[i]` is `input[start + i]` of its request."""

    def name(found: re.Match[str]) -> str:
        return f"input[{start + int(found[1])}]"

    return retold(refusal, lambda words: _SEQUENCE.sub(name, words))


def _named(error: RosebedError, index: int) -> RosebedError:
    """The same error, saying which input it befell."""
    named = error_from_code(mapping_of(error).code, f"input[{index}]: {error.message}")
    named.param = f"input[{index}]"
    return named
