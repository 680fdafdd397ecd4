"""What models that run inside the client process have in common. Knows none of them.

A call blocks the process's event loop, so that clients of a closed loop take turns, and requests of an open loop wait
in line, their latency counted from when they should have been sent.
"""

from collections.abc import Callable
from typing import NamedTuple

from rosebed.bench.targets.base import Payload, Stages
from rosebed.core.types import Float32Array


class Result(NamedTuple):
    """What a model gave, and what its device took where that is measured."""

    vectors: Float32Array
    """float32[num_inputs, dim]."""
    stages: Stages = Stages()


class CallConnection:
    """A `Connection` that is a function call."""

    def __init__(self, run: Callable[[Payload], Result]) -> None:
        self._run = run

    async def exchange(self, payload: Payload) -> Result:
        return self._run(payload)

    async def close(self) -> None:
        """Nothing is open."""


class ResultReader:
    """The half of a `Target` that reads answers."""

    def check(self, answer: Result) -> Stages:
        return answer.stages

    def vectors(self, answer: Result) -> Float32Array:
        return answer.vectors

    def canned(self, answer: Result) -> None:
        """There is no wire."""
