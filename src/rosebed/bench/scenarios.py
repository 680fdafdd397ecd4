"""From a scenario's name to its cases: the published shapes, fitted to what the target takes. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rosebed.bench.case import Case
from rosebed.bench.config import BenchConfig
from rosebed.bench.lengths import request_shapes
from rosebed.bench.requests import RequestShape
from rosebed.bench.targets.address import parse_target
from rosebed.bench.targets.base import TargetInfo
from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane

LATENCY_TOKENS = (128, 512, 4096)
SCORING_INPUTS = (5, 25, 50)
SCORING_TOKENS = (512,)
THROUGHPUT_INPUTS = (100,)
THROUGHPUT_TOKENS = (512, 1024, 4096)
THROUGHPUT_CLIENTS = (4,)
CONCURRENCY_TOKENS = (512,)
CONCURRENCY_CLIENTS = (1, 2, 4, 8, 16, 64)
DEFAULT_PROCESSES = 4
"""Most client processes, unless the config says otherwise: as the published throughput is measured with."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the cases of one run; what it had to change is in `notes`."""

    config: BenchConfig
    info: TargetInfo
    notes: list[str] = field(default_factory=list[str])

    def cases(self, scenario: str) -> list[Case]:
        """The cases of a scenario; `sweep` has none, since each of its rates follows from the last."""
        return list(_SCENARIOS[scenario](self))

    def latency(self) -> Iterable[Case]:
        for shape in self._shapes(inputs=(1,), tokens=LATENCY_TOKENS):
            yield self._closed(shape, clients=1)

    def scoring(self) -> Iterable[Case]:
        for shape in self._shapes(inputs=SCORING_INPUTS, tokens=SCORING_TOKENS):
            yield self._closed(shape, clients=1)

    def throughput(self) -> Iterable[Case]:
        for shape in self._shapes(inputs=THROUGHPUT_INPUTS, tokens=THROUGHPUT_TOKENS):
            for clients in self.config.clients or THROUGHPUT_CLIENTS:
                yield self._closed(shape, clients=clients)

    def concurrency(self) -> Iterable[Case]:
        for shape in self._shapes(inputs=(1,), tokens=CONCURRENCY_TOKENS):
            for clients in self.config.clients or CONCURRENCY_CLIENTS:
                yield self._closed(shape, clients=clients, prefers_text=True)

    def open(self) -> Iterable[Case]:
        yield self.open_at(self.config.rate)

    def open_at(self, rate: float) -> Case:
        """Poisson arrivals at `rate` requests a second."""
        shapes = [self._fitted(shape) for shape in request_shapes(self.config.lengths, seed=self.config.seed)]
        if not self.info.has_lanes and any(shape.lane is Lane.BULK for shape in shapes):
            self._note("the target has no lanes: bulk requests were sent like the others")
        return Case(
            label=f"{rate:g} requests/s",
            shapes=tuple(shapes),
            as_text=self._as_text(prefers_text=False),
            processes=self._num_processes(len(shapes)),
            rate=rate,
            duration_s=self.config.duration,
            warmup_s=self.config.warmup,
            max_requests=self.config.requests,
            seed=self.config.seed,
        )

    def _closed(self, shape: RequestShape, *, clients: int, prefers_text: bool = False) -> Case:
        inputs, tokens = len(shape.lengths), shape.lengths[0]
        return Case(
            label=f"{inputs} × {tokens} tokens, {clients} client{'s' if clients > 1 else ''}",
            shapes=(shape,),
            as_text=self._as_text(prefers_text=prefers_text),
            processes=self._num_processes(clients),
            clients=clients,
            duration_s=self.config.duration,
            warmup_s=self.config.warmup,
            max_requests=self.config.requests,
            seed=self.config.seed,
        )

    def _num_processes(self, most: int) -> int:
        """As configured, `most` at most; one for a model in process, since each process would load its own."""
        if parse_target(self.config.target).kind.is_in_process:
            return 1
        return min(self.config.processes or DEFAULT_PROCESSES, most)

    def _shapes(self, *, inputs: tuple[int, ...], tokens: tuple[int, ...]) -> list[RequestShape]:
        """Each number of inputs with each length, fitted, none twice."""
        wanted = [
            RequestShape((length,) * count)
            for count in self.config.inputs or inputs
            for length in self.config.tokens or tokens
        ]
        return list(dict.fromkeys(self._fitted(shape) for shape in wanted))

    def _fitted(self, shape: RequestShape) -> RequestShape:
        lengths = shape.lengths
        longest, most = self.info.max_length, self.info.max_inputs
        if longest is not None and max(lengths) > longest:
            self._note(f"the target takes inputs of {longest} tokens: longer ones were measured at that length")
            lengths = tuple(min(length, longest) for length in lengths)
        if most is not None and len(lengths) > most:
            self._note(f"the target takes {most} inputs a request: larger requests were measured with so many")
            lengths = lengths[:most]
        return RequestShape(lengths, shape.lane)

    def _as_text(self, *, prefers_text: bool) -> bool:
        wanted = self.config.input_kind
        if wanted == "auto":
            wanted = "text" if prefers_text or not self.info.takes_ids else "ids"
            if wanted == "text" and not self.info.takes_text:
                self._note("the target takes token ids only: tokenization is not part of these figures")
                return False
            if wanted == "text" and not prefers_text:
                self._note("the target takes text only: tokenization is part of these figures")
            return wanted == "text"
        if not (self.info.takes_text if wanted == "text" else self.info.takes_ids):
            raise ConfigError(f"--input-kind {wanted}: {self.info.server} does not take that")
        return wanted == "text"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


_SCENARIOS: dict[str, Callable[[Planner], Iterable[Case]]] = {
    "latency": Planner.latency,
    "scoring": Planner.scoring,
    "throughput": Planner.throughput,
    "concurrency": Planner.concurrency,
    "open": Planner.open,
    "sweep": lambda _planner: (),
}
