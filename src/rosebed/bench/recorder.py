"""Sends requests, times them, and keeps what came of each."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rosebed.bench.clock import Clock
from rosebed.bench.pool import ConnectionPool
from rosebed.bench.requests import RequestShape
from rosebed.bench.samples import Sample
from rosebed.bench.targets.base import Answer, Payload, Stages
from rosebed.core.errors import RosebedError


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """A request ready to be sent, and what it counts for."""

    shape: RequestShape
    payload: Payload


class Recorder:
    """The samples of one client process."""

    def __init__(
        self, check: Callable[[Answer], Stages], clock: Clock, *, timeout_s: float, on_done: Callable[[int], None]
    ) -> None:
        """`check` is `Target.check`; `on_done` is told how many sequences each finished request had."""
        self._check = check
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_done = on_done
        self.samples: list[Sample] = []
        self.failures: Counter[str] = Counter()

    async def send(self, pool: ConnectionPool, shot: Shot, *, intended_ns: int | None = None) -> bool:
        """Send one request over a connection of `pool`; whether it succeeded.

        Without an intended time, as in a closed loop, it is intended for when a connection is there. The answer is
        read to its end within the latency, and decoded by nobody.
        """
        sent_ns = self._clock.now_ns()
        try:
            async with asyncio.timeout(self._timeout_s), pool.connection() as connection:
                sent_ns = self._clock.now_ns()
                answer = await connection.exchange(shot.payload)
                done_ns = self._clock.now_ns()
            stages = self._check(answer)
        except (RosebedError, TimeoutError) as error:
            reason = error.message if isinstance(error, RosebedError) else f"no answer within {self._timeout_s:g} s"
            self.failures[reason] += 1
            done_ns, stages = self._clock.now_ns(), None
        self._keep(shot.shape, sent_ns if intended_ns is None else intended_ns, sent_ns, done_ns, stages)
        return stages is not None

    def _keep(self, shape: RequestShape, intended_ns: int, sent_ns: int, done_ns: int, stages: Stages | None) -> None:
        num_sequences = len(shape.lengths)
        self.samples.append(
            Sample(
                intended_ns,
                sent_ns,
                done_ns,
                num_sequences,
                shape.num_tokens,
                int(shape.lane),
                stages is None,
                stages or Stages(),
            )
        )
        self._on_done(num_sequences)
