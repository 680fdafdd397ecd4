"""One served model and the replicas that compute it: what it is, learnt from the operator or from the first replica."""

import asyncio
from collections.abc import Callable

from rosebed.core.engine import EngineInfo
from rosebed.core.errors import CheckpointError, ConfigError, Unavailable
from rosebed.core.version import __version__, are_compatible
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.model import ServedModel, known_here, model_name
from rosebed.ivy.upstream.balancer import Balancer
from rosebed.proto.codec import ReplicaInfo

Count = Callable[[str, int], None]
"""Adds to a counter of that name."""


class Backend:
    """One model of this worker."""

    def __init__(self, config: ModelConfig, count: Count, *, resolve_every_s: float = 30.0) -> None:
        self.count = count
        """Adds to this model's counters."""
        self.balancer = Balancer(
            config.tulips, self.accept, lambda: count("upstream_retries", 1), resolve_every_s=resolve_every_s
        )
        self._config = config
        self._model: ServedModel | None = None
        self._engine: EngineInfo | None = None
        self._loading = asyncio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """What it answers to, the first its own; none while nobody has said what it is."""
        if self._model is not None:
            return self._model.names
        own = () if self._config.model is None else (model_name(self._config.model),)
        return self._config.served_model_names or own

    @property
    def is_known(self) -> bool:
        """Whether `model` is."""
        return self._model is not None

    @property
    def model(self) -> ServedModel:
        """What is served. Unavailable while nobody has said what that is."""
        if self._model is None:
            raise Unavailable("no inference server has answered yet")
        return self._model

    @property
    def engine(self) -> EngineInfo:
        """What the last inference server to be taken on says of itself. Unavailable while none has answered."""
        if self._engine is None:
            raise Unavailable("no inference server has answered yet")
        return self._engine

    async def load(self) -> None:
        """Read the model if the operator said which it is; else the first replica does."""
        if self._config.model is not None:
            await self._load(self._config.model)

    async def _load(self, model: str, *, max_length: int | None = None) -> ServedModel:
        """Read `model`, off the loop, unless one is known already. `max_length` counts where the operator gave none."""
        async with self._loading:
            if self._model is None:
                self._model = await asyncio.to_thread(ServedModel.load, model, self._config, max_length=max_length)
            return self._model

    async def accept(self, info: ReplicaInfo) -> None:
        """Take a replica on. A SetupError if it cannot serve this gateway's requests, or the gateway its model.

        The first one says what the model is, and how long its sequences may be, where the operator did not.
        """
        if not are_compatible(info.version, __version__):
            raise ConfigError(
                f"it runs Rosebed {info.version or 'of an unknown version'}, the gateway {__version__}: "
                "both need the same major and minor version"
            )
        try:
            model = await self._load(known_here(info.engine.model), max_length=info.engine.max_length)
        except CheckpointError as error:
            raise CheckpointError(f"{error.message}; say with --model where the gateway finds it") from error
        model.check_replica(info.engine)
        self._engine = info.engine
