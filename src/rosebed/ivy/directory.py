"""Which model this gateway serves, learnt from the operator or from the first replica that answers."""

import asyncio
from dataclasses import replace

from rosebed.core.errors import CheckpointError, ModelNotFound, Unavailable
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.model import ServedModel, known_here
from rosebed.proto.codec import ReplicaInfo


class ModelDirectory:
    """Finds the model that a request asks for. One per worker."""

    def __init__(self, config: IvyConfig) -> None:
        self._config = config
        self._model: ServedModel | None = None
        self._loading = asyncio.Lock()

    @property
    def models(self) -> tuple[ServedModel, ...]:
        """What is served; nothing until the model is known."""
        return () if self._model is None else (self._model,)

    def find(self, name: str | None) -> ServedModel:
        """The model called `name`; without a name, the only one. Unavailable while none is known yet."""
        if self._model is None:
            raise Unavailable("no inference server has answered yet")
        if name is not None and name not in self._model.names:
            raise ModelNotFound(f"the model {name!r} is not served here; {', '.join(self._model.names)} is")
        return self._model

    async def load(self, model: str, *, max_length: int | None = None) -> ServedModel:
        """Read `model`, off the loop, unless one is known already. `max_length` counts where the operator gave none."""
        async with self._loading:
            if self._model is None:
                overrides = self._config.overrides
                self._model = await asyncio.to_thread(
                    ServedModel.load,
                    model,
                    revision=self._config.revision,
                    overrides=replace(overrides, max_length=overrides.max_length or max_length),
                    names=self._config.served_model_names,
                )
            return self._model

    async def accept(self, info: ReplicaInfo) -> None:
        """Take a replica on. A SetupError if it cannot serve this gateway's requests, or the gateway its model.

        The first one says what the model is, and how long its sequences may be, where the operator did not.
        """
        try:
            model = await self.load(known_here(info.engine.model), max_length=info.engine.max_length)
        except CheckpointError as error:
            raise CheckpointError(f"{error.message}; say with --model where the gateway finds it") from error
        model.check_replica(info.engine)
