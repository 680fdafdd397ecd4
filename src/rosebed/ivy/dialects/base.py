"""What dialects are made from, and what each of their operations is. Knows none of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from rosebed.core.errors import RosebedError
from rosebed.ivy.dialects.bodies import BodyReader
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.embedding import EmbeddingService
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation
from rosebed.ivy.http.faults import ErrorShape
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.json_body import ReadBulk
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.retelling import renamed
from rosebed.ivy.scoring import ScoringService
from rosebed.ivy.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What every dialect of one worker works with."""

    service: EmbeddingService
    scoring: ScoringService
    directory: ModelDirectory
    workload: Workload
    intake: BodyIntake
    max_inputs: int
    """Most inputs of one request."""
    num_workers: int
    """Of the gateway."""
    num_in_progress: Callable[[], int]
    """Requests that this worker is answering."""

    def reader(self, schema: type[msgspec.Struct], field: str, read_bulk: ReadBulk) -> BodyReader[Any]:
        """Reads bodies whose `field` may be large."""
        return BodyReader[Any](schema, field, read_bulk, workload=self.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOperation:
    """What a dialect makes of one kind of body."""

    handle: Callable[[Call, bytes], Awaitable[Reply]]
    """From a body to its answer."""
    summary: str
    body: type[msgspec.Struct]
    """Schema of the body."""
    answer: Any = None
    """Schema of a 200 answer that is JSON: any type msgspec knows."""
    error_shape: ErrorShape
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field of `EmbeddingsRequest` → what the dialect calls it, where that is not the same; `input` is the inputs."""

    async def reply(self, call: Call, body: bytes) -> Reply:
        """The answer; errors name the dialect's own fields."""
        try:
            return await self.handle(call, body)
        except RosebedError as error:
            if not self.names:
                raise
            raise renamed(error, self.names) from error

    def operation(self, intake: BodyIntake) -> Operation:
        """As what answers a path of its own."""

        async def handler(call: Call) -> Reply:
            return await self.reply(call, await call.read_json(intake))

        return Operation(handler=handler, summary=self.summary, body=(self.body,), answer=self.answers)

    @property
    def answers(self) -> tuple[Any, ...]:
        """Schemas of a 200 answer that is JSON."""
        return () if self.answer is None else (self.answer,)


class Dialect(Protocol):
    """A wire format that clients speak."""

    error_shape: ErrorShape

    def operations(self) -> dict[str, BodyOperation]:
        """What it answers that other dialects may answer at the same path, by the names that `deciding` uses."""
        ...
