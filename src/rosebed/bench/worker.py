"""What one client process does: opens the target, prepares its share of a case, measures when told.

Knows no other process; `crew` starts them and puts their recordings together.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from rosebed.bench.case import Case
from rosebed.bench.clock import MonotonicClock
from rosebed.bench.first_answers import check_first_answers
from rosebed.bench.loops import Budget, closed_loop, open_loop
from rosebed.bench.pool import ConnectionPool
from rosebed.bench.recorder import Recorder, Shot
from rosebed.bench.requests import RequestMaker, TokenCount
from rosebed.bench.samples import Recording
from rosebed.bench.statistics import Summary, latencies_ns
from rosebed.bench.targets.base import Answer, Canned, Connection, NullConnection, Stages, TargetInfo, TargetSettings
from rosebed.bench.targets.registry import make_target
from rosebed.bench.words import WORDS
from rosebed.core.errors import ServerError

MAX_CONNECTIONS = 512
"""Of one process in an open loop; requests beyond them wait, and their latency shows it."""
OPEN_WARMUP_CLIENTS = 4
PROBED_WORDS = (4, 8)
"""Words of two short texts whose tokens are counted: short, so that every model takes them."""
NULL_REQUESTS = 300
NULL_S = 1.0
"""A null server is asked so often, or for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A client process is ready to measure."""

    canned: Canned | None
    """An answer to its first request."""
    divergence: float
    """Cosine distance between two answers to that request."""
    num_tokens: int
    """Tokens that the target counts in that request's first input."""
    tokens_per_word: float
    """By which the length of texts was chosen."""


class ClientWorker:
    """One client process's work. `describe` comes first, then any number of `prepare`, `measure`, `calibrate`."""

    def __init__(self, settings: TargetSettings, on_done: Callable[[int], None]) -> None:
        """`on_done` is told how many sequences each finished request had."""
        self._settings = settings
        self._target = make_target(settings)
        self._on_done = on_done
        self._clock = MonotonicClock()
        self._count: TokenCount | None = None
        self._share: _Share | None = None

    async def describe(self) -> TargetInfo:
        """What the target is."""
        return await self._target.describe()

    async def prepare(self, case: Case, process: int, vocab_size: int | None) -> Prepared:
        """Make and encode this process's requests, connect, check one answer, and warm up."""
        count = await self._count_tokens() if case.as_text else TokenCount()
        maker = RequestMaker(seed=[case.seed, 0, process], vocab_size=vocab_size, count=count)
        requests = maker.make(case.own_shapes(process), as_text=case.as_text)
        shots = [Shot(request.shape, self._target.encode(request)) for request in requests]
        self._share = _Share(case=case, process=process, shots=shots, pools=self._pools(case, process))
        canned, divergence = await check_first_answers(
            self._target, requests[0], shots[0].payload, timeout_s=self._settings.timeout_s
        )
        num_tokens = (
            await self._target.count_tokens(requests[0].texts[0]) if case.as_text else shots[0].shape.lengths[0]
        )
        await self._warm_up(self._share)
        gc.collect()
        gc.freeze()
        return Prepared(canned=canned, divergence=divergence, num_tokens=num_tokens, tokens_per_word=count.per_word)

    async def _count_tokens(self) -> TokenCount:
        """What the target makes of words: asked once, about as many as two texts hold."""
        if self._count is None:
            counts = {num: await self._target.count_tokens(" ".join(WORDS[:num])) for num in PROBED_WORDS}
            self._count = TokenCount.of_counts(counts)
        return self._count

    def _pools(self, case: Case, process: int) -> list[ConnectionPool]:
        if case.rate is not None:
            return [ConnectionPool(self._target.connect, limit=MAX_CONNECTIONS)]
        return [ConnectionPool(self._target.connect, limit=1) for _ in range(case.own_clients(process))]

    async def _warm_up(self, share: "_Share") -> None:
        """Send what will be measured for a while, and forget how long it took. ServerError if nothing succeeds."""
        pools = share.pools
        if share.case.rate is not None:
            await pools[0].fill(OPEN_WARMUP_CLIENTS)
            pools = pools * OPEN_WARMUP_CLIENTS
        recorder = self._recorder(self._target.check)
        end_ns = self._clock.now_ns() + int(share.case.warmup_s * 1e9)
        await closed_loop(pools, share.shots, recorder, Budget(self._clock, end_ns=end_ns))
        if len(recorder.samples) == recorder.failures.total() > 0:
            raise ServerError(f"every request of the warm-up failed: {recorder.failures.most_common(1)[0][0]}")

    def _recorder(self, check: Callable[[Answer], Stages]) -> Recorder:
        return Recorder(check, self._clock, timeout_s=self._settings.timeout_s, on_done=self._on_done)

    async def measure(self, start_ns: int) -> Recording:
        """Send this process's share of the prepared case from `start_ns` on, a time that all processes know."""
        assert self._share is not None, "prepare comes first"
        recorder = self._recorder(self._target.check)
        await self._clock.sleep_until(start_ns)
        cpu_ns, begun_ns = time.process_time_ns(), self._clock.now_ns()
        await self._send(self._share, recorder, start_ns)
        cpu_ns, elapsed_ns = time.process_time_ns() - cpu_ns, self._clock.now_ns() - begun_ns
        await self._close_share()
        if self._settings.address.kind.is_in_process:
            cpu_ns = 0  # the model's, not the client's
        return Recording.of(
            recorder.samples, recorder.failures, cpu_ns=cpu_ns, busiest=cpu_ns / elapsed_ns if elapsed_ns else 0.0
        )

    async def _send(self, share: "_Share", recorder: Recorder, start_ns: int) -> None:
        case = share.case
        if case.rate is not None:
            due_ns = (start_ns + share.case.own_arrivals_ns(share.process)).tolist()
            await open_loop(share.pools[0], share.shots, recorder, due_ns=due_ns, clock=self._clock)
            return
        end_ns = start_ns + int(case.duration_s * 1e9)
        budget = Budget(self._clock, end_ns=end_ns, max_requests=case.own_max_requests(share.process))
        await closed_loop(share.pools, share.shots, recorder, budget)

    async def _close_share(self) -> None:
        """Hang up, and let the garbage collector see again what was kept from it."""
        if self._share is not None:
            for pool in self._share.pools:
                await pool.close()
        gc.unfreeze()

    async def calibrate(self, address: str | None) -> Summary | None:
        """What this client measures, alone, where the server does nothing: at `address`, or without a wire for None."""
        assert self._share is not None, "prepare comes first"

        async def connect() -> Connection:
            return NullConnection() if address is None else await self._target.connect(address)

        pool = ConnectionPool(connect, limit=1)
        recorder = self._recorder(lambda _: Stages())
        end_ns = self._clock.now_ns() + int(NULL_S * 1e9)
        budget = Budget(self._clock, end_ns=end_ns, max_requests=NULL_REQUESTS)
        await closed_loop([pool], self._share.shots, recorder, budget)
        await pool.close()
        # The first opens the connection.
        return Summary.of_ns(latencies_ns(Recording.of(recorder.samples[1:], recorder.failures).succeeded))

    async def close(self) -> None:
        """Close the target."""
        await self._target.close()
        self._clock.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one process sends of a case, and over what."""

    case: Case
    process: int
    shots: list[Shot]
    pools: list[ConnectionPool]
