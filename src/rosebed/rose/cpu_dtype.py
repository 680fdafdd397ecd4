"""Which type `auto` computes in on a CPU: bfloat16 where a matrix unit multiplies it and the model was verified in it.

`rosebed verify --dtype bfloat16` leaves a note when a model passes. It holds for these very files: who changes a weight
changes its file's time, and verifies again. Imports no torch.
"""

import hashlib
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Literal

from rosebed.core.model_spec import ModelSpec

_logger = logging.getLogger(__name__)

CpuDtype = Literal["float32", "bfloat16"]

TOLERANCE = 1e-3
"""Cosine distance from the float32 reference within which bfloat16 may be taken unasked."""
_AMX = {"amx_tile", "amx_bf16"}
_CPU_INFO = Path("/proc/cpuinfo")


def default_dtype(spec: ModelSpec, *, cpu_info: Path = _CPU_INFO, folder: Path | None = None) -> CpuDtype:
    """What `--dtype auto` means for `spec` on this CPU."""
    if not has_amx(cpu_info):
        return "float32"
    if _note(spec, folder).is_file():
        _logger.info("%s: bfloat16, as it was verified in; --dtype float32 computes in full precision", spec.folder)
        return "bfloat16"
    _logger.info(
        "%s: float32. This processor multiplies bfloat16 many times faster: `rosebed verify %s --dtype bfloat16` says "
        "whether it is exact enough, and if so it is taken from then on",
        spec.folder,
        spec.folder,
    )
    return "float32"


def has_amx(cpu_info: Path = _CPU_INFO) -> bool:
    """Whether this processor has Intel's matrix unit for bfloat16."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.split()) >= _AMX


def note_verified(spec: ModelSpec, least_cosine: float, *, folder: Path | None = None) -> None:
    """Remember whether `spec`, as its files are now, may be computed in bfloat16 unasked."""
    path = _note(spec, folder)
    if 1 - least_cosine > TOLERANCE:
        path.unlink(missing_ok=True)
        return
    with suppress(OSError):  # nowhere to write: `auto` stays with float32
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"model": str(spec.folder), "least_cosine": least_cosine}))


def _note(spec: ModelSpec, folder: Path | None) -> Path:
    files = sorted(path for path in Path(spec.folder).rglob("*") if path.suffix in (".safetensors", ".bin", ".pt"))
    states = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    what = (spec.fingerprint, spec.pooling, spec.max_length, states)
    name = hashlib.sha256(repr(what).encode()).hexdigest()[:32]
    return (folder or Path.home() / ".cache" / "rosebed" / "bfloat16") / f"{name}.json"
