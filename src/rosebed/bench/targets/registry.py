"""Targets by kind, each imported when it is asked for."""

from importlib import import_module
from typing import Protocol, cast

from rosebed.bench.targets.address import TargetKind
from rosebed.bench.targets.base import Target, TargetSettings

TARGETS = {
    TargetKind.GRPC: "rosebed.bench.targets.tulip_stream:TulipTarget",
    TargetKind.OPENAI: "rosebed.bench.targets.openai:OpenAITarget",
    TargetKind.TEI: "rosebed.bench.targets.tei:TeiTarget",
    TargetKind.EMBEDDER: "rosebed.bench.targets.embedder:EmbedderTarget",
    TargetKind.ENGINE: "rosebed.bench.targets.engine:EngineTarget",
    TargetKind.SENTENCE_TRANSFORMERS: "rosebed.bench.targets.sentence_transformers:SentenceTransformersTarget",
}
"""Kind → module:class."""


class _TargetType(Protocol):
    def __call__(self, settings: TargetSettings) -> Target: ...


def make_target(settings: TargetSettings) -> Target:
    """The target of `settings`, not opened yet. MissingExtra if a library for it is not installed."""
    module, _, name = TARGETS[settings.address.kind].partition(":")
    return cast(_TargetType, getattr(import_module(module), name))(settings)
