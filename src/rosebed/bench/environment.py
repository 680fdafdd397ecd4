"""The machine, the software and the command behind a figure. Reads them without importing any of it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "rosebed",
    "torch",
    "triton",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "grpcio",
    "uvloop",
    "onnxruntime",
)
"""Whose versions are recorded, where they are installed."""

_GPU_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The client's side of a run; what the server says of itself is in its own `TargetInfo`."""

    date: str
    """UTC, to the second."""
    command: str
    commit: str | None
    """Of the source checkout that runs, with `+` if it has changes; None where it is installed otherwise."""
    cpu: str
    num_cpus: int
    """Usable by this process."""
    gpus: tuple[str, ...]
    """Name, driver and memory of each."""
    system: str
    python: str
    packages: dict[str, str]


def read_environment(arguments: Sequence[str]) -> Environment:
    """Everything as it is now; `arguments` are the command's, and secrets are taken out of them."""
    return Environment(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=" ".join(["rosebed", *without_secrets(arguments)]),
        commit=_commit(),
        cpu=_cpu(),
        num_cpus=len(os.sched_getaffinity(0)),
        gpus=_gpus(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=_versions(),
    )


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """`arguments` with the value of `--api-key` and `--hub-token` replaced."""
    shown: list[str] = []
    is_secret = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if is_secret:
            shown.append("***")
        elif flag in ("--api-key", "--hub-token") and equals:
            shown.append(f"{flag}=***")
        else:
            shown.append(argument)
        is_secret = argument in ("--api-key", "--hub-token")
    return shown


def _commit() -> str | None:
    source = Path(__file__).parent
    commit = _output("git", "-C", str(source), "rev-parse", "--short=12", "HEAD")
    if commit is None or _output("git", "-C", str(source), "ls-files", "--error-unmatch", __file__) is None:
        return None  # a checkout of something else, around an installed package
    return commit + ("+" if _output("git", "-C", str(source), "status", "--porcelain", "-uno") else "")


def _gpus() -> tuple[str, ...]:
    return tuple((_output(*_GPU_QUERY) or "").splitlines())


def _output(*command: str) -> str | None:
    """What a command prints; None if it is not there or fails."""
    program = shutil.which(command[0])
    if program is None:
        return None
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
