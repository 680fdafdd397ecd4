"""Fills a model built on `meta` from a checkpoint, tensor by tensor. Strict both ways.

Every parameter must be found and every tensor must be used or be one that the architecture lists as ignorable. Names
and shapes are compared before anything is allocated. Memory peaks at the model in its own dtype plus one tensor: each
parameter is allocated once, and copied into with conversion.
"""

import logging
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from rosebed.core.errors import CheckpointError
from rosebed.rose.checkpoint_tensors import CheckpointTensors, Shape
from rosebed.rose.layers import FusedLinear
from rosebed.rose.models.base import Loadable

_logger = logging.getLogger(__name__)

_SHOWN = 5
"""Names that an error lists before it says how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What loading took."""

    num_bytes: int
    """Size of the parameters in memory."""
    seconds: float
    peak_rss_bytes: int
    """Most memory the process has held so far, pages of mapped files included."""
    ignored: tuple[str, ...]
    """Tensors of the checkpoint that the architecture does without."""

    def __str__(self) -> str:
        return (
            f"loaded {self.num_bytes / 1e9:.2f} GB in {self.seconds:.2f} s, "
            f"peak resident memory {self.peak_rss_bytes / 1e9:.2f} GB"
        )


@dataclass(frozen=True, slots=True)
class Source:
    """One parameter and the checkpoint's tensors that make it, stacked along their first axis."""

    parameter: str
    tensors: tuple[str, ...]
    shapes: tuple[Shape, ...]
    """What each of `tensors` has to have."""


def load_weights(
    model: Loadable, tensors: CheckpointTensors, *, dtype: torch.dtype, device: torch.device
) -> LoadReport:
    """Replace every parameter of `model` by the checkpoint's, in `dtype` on `device`; move its buffers there.

    CheckpointError if a tensor is missing, unexpected, of the wrong shape or not of floats.
    """
    started = time.perf_counter()
    sources = match_names(model, tensors)
    _check_shapes(sources, tensors)
    for source in sources:
        _set_parameter(model, source, tensors, dtype=dtype, device=device)
    model.to(device)  # the buffers; parameters are there already
    ignored = tensors.names - set(_tensors_of(sources))
    if ignored:
        _logger.info("%s: not needed and not loaded: %s", tensors.origin, ", ".join(sorted(ignored)))
    return LoadReport(
        num_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        seconds=time.perf_counter() - started,
        peak_rss_bytes=peak_rss_bytes(),
        ignored=tuple(sorted(ignored)),
    )


def match_names(model: Loadable, tensors: CheckpointTensors) -> list[Source]:
    """Which tensors make which parameter. CheckpointError unless they cover the model and none is left over."""
    names, unprefixed = tensors.names, list(_sources(model))
    prefix = max(model.PREFIXES, key=lambda prefix: sum(prefix + name in names for name in _tensors_of(unprefixed)))
    sources = [replace(source, tensors=tuple(prefix + name for name in source.tensors)) for source in unprefixed]
    needed = set(_tensors_of(sources))
    if missing := needed - names:
        raise CheckpointError(
            f"{tensors.origin} lacks tensors that {type(model).__name__} needs: {_some(missing)}; "
            f"what it holds beside the others: {_some(names - needed)}"
        )
    if unexpected := names - needed - model.IGNORABLE:
        raise CheckpointError(
            f"{tensors.origin} holds tensors that {type(model).__name__} does not compute with: {_some(unexpected)}; "
            "serving it without them would give other vectors"
        )
    return sources


def _sources(model: Loadable) -> Iterator[Source]:
    for parameter, value in model.named_parameters():
        owner, _, leaf = parameter.rpartition(".")
        parent, dot, module = owner.rpartition(".")
        parts = model.FUSED.get(module)
        if parts is None:
            yield Source(parameter, (parameter,), (tuple(value.shape),))
        else:
            fused = model.get_submodule(owner)
            assert isinstance(fused, FusedLinear)
            names = tuple(f"{parent}{dot}{part}.{leaf}" for part in parts)
            yield Source(parameter, names, tuple((rows, *value.shape[1:]) for rows in fused.part_sizes))


def _tensors_of(sources: Iterable[Source]) -> Iterator[str]:
    return (name for source in sources for name in source.tensors)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more if ordered else "nothing"


def _check_shapes(sources: Iterable[Source], tensors: CheckpointTensors) -> None:
    for source in sources:
        for name, expected in zip(source.tensors, source.shapes, strict=True):
            found = tensors.shapes[name]
            if found != expected:
                raise CheckpointError(
                    f"{tensors.origin}: {name} has shape {list(found)}, but config.json asks for {list(expected)}: "
                    "the weights and config.json belong to different models"
                )


def _set_parameter(
    model: nn.Module, source: Source, tensors: CheckpointTensors, *, dtype: torch.dtype, device: torch.device
) -> None:
    owner_name, _, leaf = source.parameter.rpartition(".")
    owner = model.get_submodule(owner_name)
    value = torch.empty(getattr(owner, leaf).shape, dtype=dtype, device=device)
    for name, rows in zip(source.tensors, value.split([shape[0] for shape in source.shapes]), strict=True):
        tensor = tensors.read(name)
        if not tensor.is_floating_point():
            raise CheckpointError(f"{tensors.origin}: {name} holds {tensor.dtype}; only floats are served")
        rows.copy_(tensor)
    setattr(owner, leaf, nn.Parameter(value, requires_grad=False))


def peak_rss_bytes() -> int:
    """Most resident memory of this process so far."""
    # NOTE: Linux's getrusage remembers what the parent held when it started this process; /proc does not.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
