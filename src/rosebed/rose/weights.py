"""Fills a model built on `meta` from a checkpoint, tensor by tensor. Strict both ways.

Every parameter must be found and every tensor must be used or be one that the architecture lists as ignorable. Memory
peaks at the model in its own dtype plus one tensor: each parameter is allocated once, and copied into with conversion.
"""

import logging
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rosebed.core.errors import CheckpointError
from rosebed.rose.checkpoint_tensors import CheckpointTensors
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


def load_weights(
    model: Loadable, tensors: CheckpointTensors, *, dtype: torch.dtype, device: torch.device
) -> LoadReport:
    """Replace every parameter of `model` by the checkpoint's, in `dtype` on `device`; move its buffers there.

    CheckpointError if a tensor is missing, unexpected, of the wrong shape or not of floats.
    """
    started = time.perf_counter()
    sources = match_names(model, tensors)
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
    sources = [Source(source.parameter, tuple(prefix + name for name in source.tensors)) for source in unprefixed]
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
    for parameter, _ in model.named_parameters():
        owner, _, leaf = parameter.rpartition(".")
        parent, dot, module = owner.rpartition(".")
        parts = model.FUSED.get(module)
        yield Source(parameter, tuple(f"{parent}{dot}{part}.{leaf}" for part in parts) if parts else (parameter,))


def _tensors_of(sources: Iterable[Source]) -> Iterator[str]:
    return (name for source in sources for name in source.tensors)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more if ordered else "nothing"


def _set_parameter(
    model: nn.Module, source: Source, tensors: CheckpointTensors, *, dtype: torch.dtype, device: torch.device
) -> None:
    owner_name, _, leaf = source.parameter.rpartition(".")
    owner = model.get_submodule(owner_name)
    value = torch.empty(getattr(owner, leaf).shape, dtype=dtype, device=device)
    filled = 0
    for name in source.tensors:
        filled += _copy_rows(value[filled:], name, tensors)
    if filled < len(value):
        raise CheckpointError(
            f"{tensors.origin}: {' + '.join(source.tensors)} have {filled} rows, but config.json asks for {len(value)}"
        )
    setattr(owner, leaf, nn.Parameter(value, requires_grad=False))


def _copy_rows(value: Tensor, name: str, tensors: CheckpointTensors) -> int:
    """Copy one tensor onto the first rows of `value`; how many there were. A plain parameter is all its rows."""
    tensor = tensors.read(name)
    rows = value[: tensor.shape[0]] if tensor.ndim else value
    if tensor.shape != rows.shape:
        raise CheckpointError(
            f"{tensors.origin}: {name} has shape {list(tensor.shape)}, but config.json asks for {list(value.shape)}: "
            "the weights and config.json belong to different models"
        )
    if not tensor.is_floating_point():
        raise CheckpointError(f"{tensors.origin}: {name} holds {tensor.dtype}; only floats are served")
    rows.copy_(tensor)
    return len(rows)


def peak_rss_bytes() -> int:
    """Most resident memory of this process so far."""
    # NOTE: Linux's getrusage remembers what the parent held when it started this process; /proc does not.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
