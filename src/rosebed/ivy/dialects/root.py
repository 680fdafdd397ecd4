"""Paths at the root that several dialects answer: a body is read, decided about, and left to the one it is for."""

from collections.abc import Mapping
from functools import partial
from itertools import chain

from rosebed.ivy.dialects.base import BodyOperation
from rosebed.ivy.dialects.deciding import Decider, Row
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import error_reply
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.workload import LARGE, Workload


def decided_resources(
    row: Row, operations: Mapping[str, BodyOperation], *, intake: BodyIntake, workload: Workload
) -> list[Resource]:
    """The row's paths. What fails before a body is there to decide about is told in the default's words."""
    chosen = [operations[name] for name in row.operations]
    operation = Operation(
        handler=_Decided(row, operations, intake=intake, workload=workload),
        summary=" — or: ".join(dict.fromkeys(one.summary for one in chosen)),
        body=tuple(dict.fromkeys(one.body for one in chosen)),
        answer=tuple(chain.from_iterable(one.answers for one in chosen)),
    )
    shape = chosen[0].error_shape
    return [Resource(path=path, operations={"POST": operation}, error_shape=shape) for path in row.paths]


class _Decided:
    """The handler of one row."""

    def __init__(
        self, row: Row, operations: Mapping[str, BodyOperation], *, intake: BodyIntake, workload: Workload
    ) -> None:
        self._decider = Decider(row)
        self._default = operations[row.default]
        self._operations = operations
        self._intake = intake
        self._workload = workload

    async def __call__(self, call: Call) -> Reply:
        body = await call.read_json(self._intake)
        operation = self._default
        try:
            operation = self._operations[await self._decide(body)]
            return await operation.reply(call, body)
        except Exception as error:
            return error_reply(error, operation.error_shape, call.request_id)

    async def _decide(self, body: bytes) -> str:
        if len(body) < LARGE:
            return self._decider.decide(body)
        return await self._workload.run(len(body), partial(self._decider.decide, body))
