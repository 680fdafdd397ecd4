"""Which model a request means: by the name it asks for, or the only one there is."""

import asyncio
from collections.abc import Sequence

from rosebed.core.engine import EngineInfo
from rosebed.core.errors import InvalidInput, ModelNotFound, Unavailable
from rosebed.ivy.backend import Backend
from rosebed.ivy.model import ServedModel


class ModelDirectory:
    """All models of one worker, by the names they answer to."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = tuple(backends)

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """What is served, as far as it is known yet."""
        return tuple(backend.model for backend in self._backends if backend.is_known)

    def find(self, name: str | None) -> ServedModel:
        """The model called `name`; without a name, the only one.

        ModelNotFound if nothing is called so, InvalidInput if a name is missing and there are several; Unavailable
        while nobody has said what the model is.
        """
        return self._named(name).model

    def engine(self, name: str | None) -> EngineInfo:
        """What an inference server of that model says of itself. Raises as `find` does."""
        return self._named(name).engine

    async def connected(self, name: str | None) -> Backend:
        """The same, with its replicas, once one has connected or a worker just started has waited long enough."""
        if name is not None and not any(name in backend.names for backend in self._backends):
            nameless = [backend for backend in self._backends if not backend.names]
            await asyncio.gather(*(backend.balancer.await_first() for backend in nameless))
        backend = self._named(name)
        await backend.balancer.await_first()
        return backend

    def _named(self, name: str | None) -> Backend:
        if name is None:
            return self._only()
        for backend in self._backends:
            if name in backend.names:
                return backend
        if not all(backend.names for backend in self._backends):
            raise Unavailable("no inference server has answered yet")
        raise ModelNotFound(f"the model {name!r} is not served here; {self._all_names()}")

    def _only(self) -> Backend:
        only, *others = self._backends
        if others:
            raise InvalidInput(
                f"the request names no model (TEI's routes cannot), and several are served here; {self._all_names()}",
                param="model",
            )
        return only

    def _all_names(self) -> str:
        names = [name for backend in self._backends for name in backend.names]
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
