"""Files of measured choices: which of them holds on this machine, and where `rosebed tune` puts its own.

A table holds for the chip and the versions it was measured with; a user's own for exactly these is preferred to the one
that ships for the chip. Knows no tensors, and not what the choices are about.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from rosebed.core.errors import ConfigError

_logger = logging.getLogger(__name__)

Table = Mapping[str, Any]
"""The fields of a `TableKey`, and a list of choices by the name of what they are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKey:
    """What measured times depend on."""

    chip: str
    """As CUDA names it."""
    driver: str
    torch: str
    triton: str

    @property
    def file_name(self) -> str:
        return f"{slug(self.chip)}_driver-{self.driver}_torch-{self.torch}_triton-{self.triton}.json"


def user_folder() -> Path:
    """Where tables of this user lie."""
    return Path.home() / ".cache" / "rosebed" / "tune"


def find_table(key: TableKey, given: str | None = None, *, folder: Path | None = None) -> Table:
    """The table to use: the file `given`, else this user's own for `key`, else the one shipped, else an empty one.

    ConfigError if `given` cannot be read or was measured on another chip; other versions are only warned of.
    """
    if given is not None:
        return _checked(_read(Path(given)), key, given)
    own = (folder or user_folder()) / key.file_name
    if own.is_file():
        _logger.info("kernels are chosen by %s", own)
        return _read(own)
    return shipped_table(key.chip)


def shipped_table(chip: str) -> Table:
    """What the package brings for a chip; empty where it brings nothing."""
    file = resources.files("rosebed.rose.cuda").joinpath("tables", f"{slug(chip)}.json")
    return json.loads(file.read_text()) if file.is_file() else {}


def write_table(path: Path, key: TableKey, choices: Table) -> None:
    """Write the table as a whole or not at all. ConfigError if it cannot be written there."""
    lines = ",\n".join(f' "{name}": [\n{_rows(rows)}\n ]' for name, rows in choices.items())
    head = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in asdict(key).items())
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text("{\n" + head + lines + "\n}\n")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _rows(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(f"  {json.dumps(row)}" for row in rows)


def _read(path: Path) -> Table:
    try:
        table = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"--tune-table {path} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"--tune-table {path} should hold an object, as `rosebed tune` writes it")
    return table


def _checked(table: Table, key: TableKey, path: str) -> Table:
    if table.get("chip") != key.chip:
        raise ConfigError(f"--tune-table {path} was measured on {table.get('chip')!r}, and this is {key.chip!r}")
    for name in (field.name for field in fields(key)):
        if table.get(name) != getattr(key, name):
            _logger.warning("%s was measured with %s %s; this is %s", path, name, table.get(name), getattr(key, name))
    return table


def slug(chip: str) -> str:
    """A chip's name as part of a file's."""
    return chip.lower().replace(" ", "_").replace("/", "_")
