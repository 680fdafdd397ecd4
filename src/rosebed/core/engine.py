"""The seam between scheduling and computing: Tulip drives an `Engine`, ROSE is one. Knows neither."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rosebed.core.engine_statistics import EngineStatistics
from rosebed.core.outputs import OutputSpecs, StepResult
from rosebed.core.types import DENSE_ONLY, Batch, OutputKind


class Completion(StrEnum):
    """How a step's end becomes known."""

    POLL = "poll"
    """`ready()` is cheap and nobody calls back: the loop polls while something is in flight (CUDA)."""
    CALLBACK = "callback"
    """Done-callbacks fire from another thread; the loop sleeps (CPU)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What one batch may hold. A single sequence over `tokens` still runs, alone."""

    tokens: int
    """The budget: more hardly raises throughput."""
    sequences: int
    spans: int
    output_bytes: int
    stretched_tokens: int = 0
    """A batch may hold up to so many where no small rest is left behind then; no more than `tokens` if this is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What a loaded model is and what it takes. Sent to gateways when they connect."""

    model: str
    """Hub id or folder the model came from."""
    architecture: str
    """The checkpoint's class name, e.g. BertModel."""
    dtype: str
    """Compute type: float32, bfloat16, …"""
    device: str
    """cpu, cuda:0, …"""
    vocab_size: int
    """Token ids lie in [0, vocab_size)."""
    type_vocab_size: int
    """Token types lie in [0, max(1, type_vocab_size))."""
    max_length: int
    """Most tokens of one sequence."""
    outputs: OutputSpecs
    """Each output the model can return."""
    normalize: bool
    """What the checkpoint's pipeline does with the dense vector."""
    limits: BatchLimits
    """Batch size the engine wants."""
    max_in_flight: int
    """Steps that may be enqueued at once, of each lane where these are separate."""
    fingerprint: str
    """Hash over tokenizer and configuration: a gateway with another one must not talk to this engine."""

    @property
    def main_output(self) -> frozenset[OutputKind]:
        """What most requests want: vectors, or the logits of a model that scores."""
        return DENSE_ONLY if OutputKind.DENSE in self.outputs else frozenset({OutputKind.LOGITS})


class LazyTensor(Protocol):
    """A step's result that may still be in the making."""

    def ready(self) -> bool:
        """Whether `result` returns at once. Never blocks."""
        ...

    def result(self) -> StepResult:
        """Wait for and return the step's outputs; raises what the step raised. Views die with `release`."""
        ...

    def release(self) -> None:
        """Give the buffer back. Idempotent."""
        ...

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call once when done, from any thread; at once if already done. `Completion.CALLBACK` engines only."""
        ...


class Engine(Protocol):
    """A loaded model that computes batches."""

    @property
    def info(self) -> EngineInfo:
        """Its `limits` are final once `warm_up` has returned; the rest is from the start."""
        ...

    @property
    def completion(self) -> Completion: ...

    @property
    def separate_lanes(self) -> bool:
        """Whether each lane has an execution slot of its own. An online step then waits for online ones alone, and
        slows bulk ones down; a bulk step begins after the online ones that were enqueued before it."""
        ...

    def step(self, batch: Batch) -> LazyTensor:
        """Enqueue one forward pass and return at once. Batches complete in the order they were stepped: those of each
        lane where lanes are separate, else all."""
        ...

    def warm_up(self) -> None:
        """Do all that must not happen under live traffic (compiling, capturing, measuring). Blocks."""
        ...

    def idle(self) -> bool:
        """Use a moment in which nothing is in flight and nothing queued, for what makes later steps faster. Blocks for
        some tens of milliseconds; False if there is nothing to be done until more steps have run."""
        ...

    def statistics(self) -> EngineStatistics:
        """What its graphs are and how steps have run. Safe to call from any thread, and cheap."""
        ...

    def close(self) -> None:
        """Finish what is in flight and free the device."""
        ...
