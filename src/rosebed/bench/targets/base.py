"""What the harness asks of a target. Knows no wire; each module beside this one does.

What is encoded ahead, and what an answer is made of, is the target's own business: here both are opaque.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.address import TargetAddress
from rosebed.core.model_spec import ModelOverrides
from rosebed.core.types import Float32Array
from rosebed.rose.config import EngineConfig

Payload = Any
"""A request, encoded so that sending it costs as little as possible."""
Answer = Any
"""A whole answer as it came, not decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """All that a client process needs to reach the target."""

    address: TargetAddress
    model_name: str | None = None
    """Name to ask for; None takes the first that the server lists."""
    api_key: str | None = None
    timeout_s: float = 120.0
    engine: EngineConfig = field(default=EngineConfig())
    """For models that run in process."""
    overrides: ModelOverrides = field(default=ModelOverrides())
    """For models that run in process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetInfo:
    """What a target says of itself; None where it does not say."""

    server: str
    """What answers, with its version where that is known."""
    model: str
    takes_ids: bool
    takes_text: bool
    max_length: int | None = None
    """Most tokens of one input."""
    max_inputs: int | None = None
    """Most inputs of one request."""
    vocab_size: int | None = None
    dtype: str | None = None
    device: str | None = None
    has_lanes: bool = False
    """Whether a request may be marked as bulk work."""


class Stages(NamedTuple):
    """Where one request's time went on the server's side, in ns; 0 where it does not say."""

    tokenize_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    """From the queue's end until the last result was on the host."""
    total_ns: int = 0
    """From arrival until the answer was made."""
    device_ns: int = 0
    """Time the device spent on this request's steps, its neighbours in them included."""
    num_steps: int = 0
    """How many steps those were."""


class Canned(NamedTuple):
    """A real answer's bytes, for a server that does nothing but repeat them."""

    wire: str
    """http or grpc."""
    messages: tuple[bytes, ...]


class Connection(Protocol):
    """One line to the target: one request at a time."""

    async def exchange(self, payload: Payload) -> Answer:
        """Send a request and return when the last byte of its answer is here. RosebedError if there is none."""
        ...

    async def close(self) -> None: ...


class Target(Protocol):
    """One target, as one client process sees it."""

    async def describe(self) -> TargetInfo:
        """What it is. Asked first, once, before anything else; RosebedError if it cannot be used."""
        ...

    async def count_tokens(self, text: str) -> int:
        """Tokens that `text` has there, special ones included. Only asked of targets that take text."""
        ...

    async def connect(self, stand_in: str | None = None) -> Connection:
        """A new connection; to `stand_in` (HOST:PORT), which speaks the same wire, instead of the target if given."""
        ...

    def encode(self, request: BenchRequest) -> Payload:
        """`request`, ready to send."""
        ...

    def check(self, answer: Answer) -> Stages:
        """Raises the RosebedError that `answer` stands for, if it is none of success."""
        ...

    def vectors(self, answer: Answer) -> Float32Array:
        """The answer's vectors, decoded: float32[num_inputs, dim]."""
        ...

    def canned(self, answer: Answer) -> Canned | None:
        """The answer for a null server to repeat; None where there is no wire."""
        ...

    async def close(self) -> None: ...


class NullConnection:
    """Answers at once: what is left is the harness."""

    async def exchange(self, payload: Payload) -> Answer:
        return payload

    async def close(self) -> None:
        """Nothing is open."""
