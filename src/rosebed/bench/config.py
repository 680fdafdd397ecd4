"""Settings of `rosebed bench`. Imports nothing heavy, so that `--help` is quick."""

from dataclasses import dataclass, field
from typing import Literal

from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.rose.config import EngineConfig

MAX_PROCESSES = 256
MAX_NUMBER = 1_000_000
"""Of seconds, milliseconds and requests a second: inf is not measured either."""

InputKind = Literal["auto", "ids", "text"]

SCENARIOS = {
    "latency": "one sequence of token ids a request, one after the other",
    "scoring": "one request of several sequences of token ids, one after the other",
    "throughput": "requests of 100 sequences, from 4 client processes",
    "concurrency": "one text a request, from 1 to 64 clients",
    "open": "requests at random times at a given rate, of mixed lengths, in two lanes",
    "sweep": "the same at rising rates, until p99 passes a bound",
}
"""Name → what it measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """One run. ConfigError names a bad value."""

    target: str
    """What to measure: grpc://HOST:PORT, unix:PATH, http://HOST:PORT for OpenAI's route, tei+http://HOST:PORT, or in
    process inprocess:MODEL, engine:MODEL, st:MODEL (sentence-transformers)."""
    model_name: str | None = None
    """Model to ask for; by default the first that the server lists."""
    api_key: str | None = None
    """Key to send as `Authorization: Bearer KEY`."""
    tokens: tuple[int, ...] = ()
    """Tokens of one input, instead of the scenario's."""
    inputs: tuple[int, ...] = ()
    """Inputs of one request, instead of the scenario's."""
    clients: tuple[int, ...] = ()
    """Clients at once, instead of the scenario's; closed loops only."""
    processes: int | None = None
    """Client processes, instead of the scenario's."""
    input_kind: InputKind = "auto"
    """What inputs are made of: token ids, or text of as many tokens; auto is the scenario's kind."""
    rate: float = 20.0
    """Requests a second of `open`, and the first that `sweep` tries."""
    p99_bound_ms: float = 100.0
    """Where `sweep` stops."""
    lengths: str = "mixed"
    """Requests of `open` and `sweep`: mixed (a trace that ships with Rosebed), a file like it, fixed:TOKENS,
    uniform:LOW:HIGH, or lognormal:MEDIAN:SIGMA."""
    duration: float = 5.0
    """Seconds that each case is measured for."""
    requests: int | None = None
    """Most requests of each case; none goes by time alone."""
    warmup: float = 1.0
    """Seconds that each case is sent before it is measured; at least one request of each client."""
    timeout: float = 120.0
    """Seconds after which a request has failed."""
    seed: int = 0
    """Decides every token, word and time of sending."""
    vocab_size: int | None = None
    """Token ids are drawn below this; by default the target's vocabulary, or 20,000 if it does not say."""
    engine: EngineConfig = field(default=EngineConfig())
    """For models in process."""
    overrides: ModelOverrides = field(default=ModelOverrides())
    """For models in process."""

    def __post_init__(self) -> None:
        for flag, values in (("--tokens", self.tokens), ("--inputs", self.inputs), ("--clients", self.clients)):
            for value in values:
                _check_least(flag, value, 1)
        optional = (("--processes", self.processes), ("--requests", self.requests), ("--vocab-size", self.vocab_size))
        for flag, value in optional:
            if value is not None:
                _check_least(flag, value, 1)
        if (self.processes or 1) > MAX_PROCESSES:
            raise ConfigError(f"--processes should be at most {MAX_PROCESSES}, not {self.processes}")
        _check_least("--warmup", self.warmup, 0)
        _check_least("--seed", self.seed, 0)
        for name in ("rate", "p99_bound_ms", "duration", "timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"--{name.replace('_', '-')} should be above 0, not {getattr(self, name)}")
        for name in ("rate", "p99_bound_ms", "duration", "timeout", "warmup"):
            if getattr(self, name) > MAX_NUMBER:
                raise ConfigError(
                    f"--{name.replace('_', '-')} should be at most {MAX_NUMBER}, not {getattr(self, name)}"
                )


def _check_least(flag: str, value: float, least: int) -> None:
    if not value >= least:
        raise ConfigError(f"{flag} should be at least {least}, not {value}")
