"""What models that run inside the client process have in common. Knows none of them.

A call blocks the process's event loop, so that clients of a closed loop take turns, and requests of an open loop wait
in line, their latency counted from when they should have been sent.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import NamedTuple

from rosebed.bench.targets.base import Payload, Stages
from rosebed.core.types import Float32Array


class Result(NamedTuple):
    """What a model gave, and what its device took where that is measured."""

    vectors: Float32Array
    """float32[num_inputs, dim]."""
    stages: Stages = Stages()


class InProcessTarget(ABC):
    """The half of a `Target` that follows from being a function call."""

    def __init__(self) -> None:
        self.num_connections = 0

    @abstractmethod
    def call(self, payload: Payload) -> Result:
        """Compute one request."""

    async def connect(self, stand_in: str | None = None) -> "CallConnection":  # noqa: ARG002 - there is no wire
        return CallConnection(self)

    def check(self, answer: Result) -> Stages:
        return answer.stages

    def vectors(self, answer: Result) -> Float32Array:
        return answer.vectors

    def canned(self, answer: Result) -> None:  # noqa: B027 - the answer is: none
        """There is no wire."""


class CallConnection:
    """A `Connection` that is a function call."""

    def __init__(self, target: InProcessTarget) -> None:
        self._target = target
        target.num_connections += 1

    async def exchange(self, payload: Payload) -> Result:
        if self._target.num_connections > 1:
            # Lets the others ask as well: their wait for this call is part of their latency.
            await asyncio.sleep(0)
        return self._target.call(payload)

    async def close(self) -> None:
        self._target.num_connections -= 1
