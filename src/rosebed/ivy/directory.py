"""Which model this gateway serves, learnt from the operator or from the first replica that answers."""

import asyncio

from rosebed.core.errors import FingerprintMismatch, ModelNotFound, Unavailable
from rosebed.core.types import Sequence
from rosebed.ivy.config import IvyConfig
from rosebed.ivy.model import ServedModel
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

    async def load(self, model: str) -> ServedModel:
        """Read `model`, off the loop, unless one is known already."""
        async with self._loading:
            if self._model is None:
                self._model = await asyncio.to_thread(
                    ServedModel.load,
                    model,
                    revision=self._config.revision,
                    overrides=self._config.overrides,
                    names=self._config.served_model_names,
                )
            return self._model

    async def accept(self, info: ReplicaInfo) -> Sequence:
        """Take a replica on: the sequence it should prove itself with.

        FingerprintMismatch if it holds another model than this gateway's tokenizer is of.
        """
        model = await self.load(info.engine.model)
        if info.engine.fingerprint != model.spec.fingerprint:
            raise FingerprintMismatch(
                f"it holds {info.engine.model} ({info.engine.fingerprint}), "
                f"the gateway {model.spec.folder} ({model.spec.fingerprint})"
            )
        return model.probe()
