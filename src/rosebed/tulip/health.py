"""The standard `grpc.health.v1` service over a `Gate`.

Not grpc_health's own servicer: there, one watcher that leaves takes the others' notifications with it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import DESCRIPTOR, HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer as HealthServicerBase

from rosebed.proto.codec import shown
from rosebed.tulip.readiness import Gate, Readiness

HEALTH_NAME: str = DESCRIPTOR.services_by_name["Health"].full_name


class HealthServicer(HealthServicerBase):
    """SERVING while the gate is open, for the server ("") and each of `services`."""

    def __init__(self, gate: Gate, services: Iterable[str]) -> None:
        self._gate = gate
        self._services = frozenset(("", *services))

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {shown(request.service)} here")
        return self._status(request.service)

    async def Watch(self, request: HealthCheckRequest, context: Any) -> None:  # noqa: N802
        changed = asyncio.Event()

        def note(_readiness: Readiness) -> None:
            changed.set()

        self._gate.add_listener(note)
        try:
            while True:
                changed.clear()
                await context.write(self._status(request.service))
                # A stopping server says so and lets the watcher go, or it could not stop.
                if self._gate.readiness is Readiness.STOPPING:
                    return
                await changed.wait()
        finally:
            self._gate.remove_listener(note)

    def _status(self, service: str) -> HealthCheckResponse:
        if service not in self._services:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        serving = self._gate.is_open
        return HealthCheckResponse(status=HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING)
