"""ROSE, the Runtime-Optimized Serving Engine: `step(batch)` on the device at hand.

Knows no requests, no sockets, no asyncio. `load_engine` is the only door; torch is imported when it is opened.
"""

from importlib import import_module
from typing import Protocol, cast

from rosebed.core.engine import Engine
from rosebed.core.model_spec import ModelSpec
from rosebed.rose.config import EngineConfig, resolve_config
from rosebed.rose.cpu_dtype import default_dtype

ENGINES = {
    "cpu": "rosebed.rose.cpu_engine:load_cpu_engine",
    "cuda": "rosebed.rose.cuda.load:load_cuda_engine",
}
"""Device type → module:function that loads an engine on it."""


class _EngineLoader(Protocol):
    def __call__(self, spec: ModelSpec, config: EngineConfig) -> Engine: ...


def load_engine(spec: ModelSpec, config: EngineConfig = EngineConfig()) -> Engine:
    """Load the model of `spec` and make it ready to step. A `SetupError` says what cannot be served, and why."""
    import torch

    resolved = resolve_config(
        config, spec.model_type, has_cuda=torch.cuda.is_available(), cpu_dtype=lambda: default_dtype(spec)
    )
    module, _, function = ENGINES[resolved.device.partition(":")[0]].partition(":")
    return cast(_EngineLoader, getattr(import_module(module), function))(spec, resolved)
