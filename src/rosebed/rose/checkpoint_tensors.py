"""Where each tensor of a checkpoint lies, and how to read one at a time. Knows names, not models.

Formats: safetensors (one file, or shards named by an index) and torch's pickles, the latter only through
`weights_only=True`, which loads tensors and refuses code.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rosebed.core.checkpoint import leads_out, read_json
from rosebed.core.errors import CheckpointError

_logger = logging.getLogger(__name__)

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"

_REMAP_BYTES = 64 << 20
"""Bytes read of a mapped pickle before it is mapped anew (20 ms), which gives the memory back."""


Shape = tuple[int, ...]


class CheckpointTensors(Protocol):
    """Named tensors that are read when asked for."""

    @property
    def names(self) -> frozenset[str]: ...

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of every tensor, known before any is read."""
        ...

    @property
    def origin(self) -> Path:
        """The folder or file they come from, for messages."""
        ...

    def read(self, name: str) -> Tensor:
        """The tensor, on the CPU, possibly as a view of a mapped file: use it, then drop it."""
        ...


def open_tensors(folder: Path) -> CheckpointTensors:
    """The tensors of a model folder. An index decides where there is one; stray weight files are warned of."""
    if (folder / SAFETENSORS_INDEX).is_file():
        weight_map = _read_index(folder)
        _warn_of_strays(folder, set(weight_map.values()))
        return SafetensorsTensors(folder, weight_map, _shapes_in_shards(folder, weight_map))
    if (folder / SAFETENSORS).is_file():
        _warn_of_strays(folder, {SAFETENSORS})
        shapes = _shapes_in(folder / SAFETENSORS)
        return SafetensorsTensors(folder, dict.fromkeys(shapes, SAFETENSORS), shapes)
    if (folder / PICKLE).is_file():
        return PickledTensors(folder / PICKLE)
    raise CheckpointError(f"{folder} holds none of {SAFETENSORS}, {SAFETENSORS_INDEX}, {PICKLE}: download the weights")


class SelectedTensors:
    """Some of a checkpoint's tensors."""

    def __init__(self, tensors: CheckpointTensors, names: frozenset[str]) -> None:
        self.names = names
        self.shapes = tensors.shapes
        self.origin = tensors.origin
        self.read = tensors.read


def select(tensors: CheckpointTensors, names: frozenset[str]) -> CheckpointTensors:
    """`tensors` without those that are not among `names`."""
    return tensors if names == tensors.names else SelectedTensors(tensors, names)


class SafetensorsTensors:
    """Tensors of safetensors files, each read through a mapping of its own."""

    def __init__(self, folder: Path, weight_map: Mapping[str, str], shapes: Mapping[str, Shape]) -> None:
        self.origin = folder
        self.shapes = shapes
        self._weight_map = weight_map

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._weight_map)

    def read(self, name: str) -> Tensor:
        # NOTE: mapped pages count as this process's memory until the mapping goes, and it goes with its last tensor.
        # One mapping per tensor (0.2 ms) keeps the peak at one tensor instead of one more copy of the checkpoint.
        path = self.origin / self._weight_map[name]
        try:
            with safe_open(path, framework="pt") as file:
                return file.get_tensor(name)
        except SafetensorError as error:
            raise _damaged(path, error) from error


class PickledTensors:
    """Tensors of a torch pickle, mapped where its format allows."""

    def __init__(self, path: Path) -> None:
        self.origin = path
        self._tensors = load_pickle(path)
        self._bytes_read = 0
        self.shapes: Mapping[str, Shape] = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def read(self, name: str) -> Tensor:
        # As with safetensors, pages once read stay until the mapping goes; here one mapping has all tensors.
        if self._bytes_read > _REMAP_BYTES and is_mappable(self.origin):
            self._tensors, self._bytes_read = load_pickle(self.origin), 0
        tensor = self._tensors[name]
        self._bytes_read += tensor.nbytes
        return tensor


def is_mappable(path: Path) -> bool:
    """Whether torch can map the pickle: not so the format from before torch 1.6."""
    return is_zipfile(path)


def load_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a torch pickle by name. CheckpointError if it holds anything else, code above all."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mappable(path))
    except Exception as error:  # what a damaged pickle raises is not bounded
        raise CheckpointError(
            f"{path} is damaged or holds more than tensors ({_first_line(error)}): download it again, "
            "or convert it to safetensors"
        ) from error
    if not isinstance(content, dict) or not all(_is_named_tensor(*item) for item in content.items()):
        raise CheckpointError(f"{path} should hold a dictionary of names to plain tensors: convert it to safetensors")
    return content


def _is_named_tensor(name: object, value: object) -> bool:
    """Sparse, quantised and nested tensors, and those without values, are tensors too, but none that can be copied."""
    return (
        isinstance(name, str)
        and isinstance(value, Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.is_quantized or value.is_nested)
    )


def _read_index(folder: Path) -> Mapping[str, str]:
    index = read_json(folder / SAFETENSORS_INDEX) or {}
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise CheckpointError(f"{folder / SAFETENSORS_INDEX} has no 'weight_map' of tensor names to file names")
    for file in sorted(set(weight_map.values())):
        if leads_out(file):
            raise CheckpointError(f"{folder / SAFETENSORS_INDEX}: shard {file!r} leads out of the model folder")
        if not (folder / file).is_file():
            raise CheckpointError(
                f"{folder} lacks the shard {file}, which {SAFETENSORS_INDEX} lists: download it again"
            )
    return weight_map


def _shapes_in_shards(folder: Path, weight_map: Mapping[str, str]) -> Mapping[str, Shape]:
    held = {file: _shapes_in(folder / file) for file in set(weight_map.values())}
    absent = sorted(name for name, file in weight_map.items() if name not in held[file])
    if absent:
        raise CheckpointError(
            f"{folder / weight_map[absent[0]]} lacks the tensor {absent[0]}, which {SAFETENSORS_INDEX} lists "
            f"({len(absent)} such in all): download the folder again"
        )
    return {name: held[file][name] for name, file in weight_map.items()}


def _shapes_in(path: Path) -> dict[str, Shape]:
    """From the file's header alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  (no dict)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path} is damaged or a Git LFS pointer ({_first_line(error)}): download it again")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _warn_of_strays(folder: Path, used: set[str]) -> None:
    strays = sorted(path.name for path in folder.glob("*.safetensors") if path.name not in used)
    if strays:
        _logger.warning("%s: ignored %s, which no index lists", folder, ", ".join(strays))
