"""Bodies to a dialect's own struct; large ones are decoded off the event loop."""

from functools import partial
from typing import Generic, TypeVar

import msgspec

from rosebed.ivy.http.json_body import BulkReader, JsonReader, ReadBulk
from rosebed.ivy.workload import LARGE, Workload

Body = TypeVar("Body", bound=msgspec.Struct)


class BodyReader(Generic[Body]):
    """Reads the bodies of one schema, whose inputs may be large."""

    def __init__(self, schema: type[Body], field: str, read_bulk: ReadBulk, *, workload: Workload) -> None:
        self._reader = JsonReader[Body](schema)
        self._bulk_reader = BulkReader[Body](schema, field, read_bulk)
        self._workload = workload

    async def read(self, body: bytes) -> Body:
        """`body` as the schema. What is wrong with it is raised as the readers say."""
        if len(body) < LARGE:
            return self._reader.read(body)
        return await self._workload.run(len(body), partial(self._bulk_reader.read, body))
