"""Options from a TOML file: `--config FILE`, below flags and the environment, above defaults.

Its keys are the command's options by their long names, and `model` for MODEL. Where a command serves several models,
each may have a table `[[models]]` with options of its own. Knows no command's options.
"""

import difflib
import re
import tomllib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rosebed.cli.options import SectionedCommand, SectionedOption, quoted
from rosebed.core.errors import ConfigError

GATEWAY = "Gateway"
"""Section of the options that hold for a whole server, not for one of its models."""

_TABLES = "models"
_MODEL = "model"
"""The key for the argument."""
_SECRETS = frozenset({"api-key", "hub-token"})
_META = "rosebed.config_file"
_PLACE = re.compile(r"\(at (line (?P<line>\d+), column \d+|end of document)\)")
"""Where tomllib says that a file is wrong."""
_KEY = re.compile(r"\s*([\w.-]+|\[[^=]*\])\s*(=|$)")
_SUBJECT = re.compile(r"(?<![\w-])--(?P<option>[a-z0-9-]+)|^MODEL\b")
"""What a message is about: an option, or the argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """One table `[[models]]`."""

    where: str
    """As messages name it, FILE: models[i]."""
    values: Mapping[str, Any]
    """Of the command's parameters, as its function receives them."""
    places: Mapping[str, str]
    """Option → where the file has its value, in the table or above all tables, where nothing counts more."""

    @contextmanager
    def blamed(self) -> Generator[None]:
        """A ConfigError about an option names its place in the file, any other the table."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(_placed(error.message, self.places) or f"{self.where}: {error.message}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A `ModelTable` to be, before it is known what counts more than it."""

    where: str
    values: Mapping[str, Any]
    """As click takes them from a map of defaults."""
    keys: tuple[str, ...]


class ConfigurableCommand(SectionedCommand):
    """A command that takes `--config`."""

    def __init__(self, *arguments: Any, has_models: bool = False, **settings: Any) -> None:
        """`has_models` allows tables `[[models]]`, which `model_tables` returns."""
        super().__init__(*arguments, **settings)
        self.has_models = has_models
        self.params.append(
            click.Option(
                ["--config"],
                metavar="FILE",
                is_eager=True,
                expose_value=False,
                callback=self._apply,
                help="TOML file of options by their long names; flags and the environment count more.",
            )
        )

    def foreign_values(self, ctx: click.Context) -> Mapping[str, Any]:  # noqa: ARG002 - for those that override it
        """Parameter's name → its value in environment variables of other servers; they count more than the file."""
        return {}

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. A ConfigError about what the file says names the file and the key."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            message = _placed(error.message, _places(ctx, *ctx.meta[f"{_META}.keys"]))
            if message is None:
                raise
            raise ConfigError(message) from error

    def _apply(self, ctx: click.Context, _option: click.Parameter, path: str | None) -> None:
        content = {} if path is None else _read(path)
        tables = _listed(content.pop(_TABLES), path) if self.has_models and _TABLES in content else []
        values = dict(_parsed(_by_key(self), content, f"{path}: ", f"rosebed {ctx.info_name}"))
        foreign = self.foreign_values(ctx)
        ctx.default_map = {**(ctx.default_map or {}), **values, **foreign}
        ctx.meta[_META] = [
            self._table(table, f"{path}: {_TABLES}[{i}]", ctx.info_name or "") for i, table in enumerate(tables)
        ]
        ctx.meta[f"{_META}.foreign"] = frozenset(foreign)
        ctx.meta[f"{_META}.keys"] = (f"{path}: ", content)

    def _table(self, table: Any, where: str, whose: str) -> _Table:
        if not isinstance(table, dict):
            raise ConfigError(f"{where} should be a table of options, not {table!r}")
        of_all = {key: parameter for key, parameter in _by_key(self).items() if not _is_of_a_model(parameter)}
        for key in table:
            if _normal(key) in of_all:
                raise ConfigError(f"{where}.{key} is of the whole server: it belongs above the first [[{_TABLES}]]")
        options = {key: parameter for key, parameter in _by_key(self).items() if key not in of_all}
        values = dict(_parsed(options, table, f"{where}.", f"a model of rosebed {whose}"))
        return _Table(where=where, values=values, keys=tuple(table))


def model_tables(ctx: click.Context) -> list[ModelTable]:
    """Each table `[[models]]`. It counts more than the rest of the file, flags and the environment more than both."""
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    above = _places(ctx, *ctx.meta[f"{_META}.keys"])
    tables: list[_Table] = ctx.meta[_META]
    return [
        ModelTable(
            where=table.where,
            values=ctx.params
            | {
                name: parameters[name].process_value(ctx, value)
                for name, value in table.values.items()
                if not _is_insisted_on(ctx, name)
            },
            places={**above, **_places(ctx, f"{table.where}.", table.keys)},
        )
        for table in tables
    ]


def _is_insisted_on(ctx: click.Context, name: str | None) -> bool:
    """Whether something counts more than the file."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return name in ctx.meta[f"{_META}.foreign"] or (name is not None and ctx.get_parameter_source(name) in given)


def _places(ctx: click.Context, where: str, keys: Iterable[str]) -> dict[str, str]:
    """Option → its place in the file, of those that nothing counts more than; `keys` are spelled as they are there."""
    by_key = _by_key(ctx.command)
    return {_normal(key): f"{where}{key}" for key in keys if not _is_insisted_on(ctx, by_key[_normal(key)].name)}


def _placed(message: str, places: Mapping[str, str]) -> str | None:
    """`message` about a place in the file instead of an option, if the first part of it names one that is there."""
    for found in _SUBJECT.finditer(message.partition(": ")[0]):
        place = places.get(found["option"] or _MODEL)
        if place is not None:
            return f"{place}: {message}" if found.start() else f"{place}{message[found.end() :]}"
    return None


def _read(path: str) -> dict[str, Any]:
    text = ""
    try:
        text = Path(path).expanduser().read_text("utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not TOML: {error}{_key_at(str(error), text)}") from error


def _key_at(message: str, text: str) -> str:
    """The line that tomllib complains of, and the key there, but never the value, which may be a secret."""
    place = _PLACE.search(message)
    if place is None:
        return ""
    lines = text.splitlines() or [""]
    number = int(place["line"] or len(lines))
    key = _KEY.match(lines[min(number, len(lines)) - 1])
    return f": line {number}, {key[1]}" if key else ""


def _listed(tables: Any, path: str | None) -> list[Any]:
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: {_TABLES} should be tables, each with the heading [[{_TABLES}]]")
    if not tables:
        raise ConfigError(f"{path}: {_TABLES} is empty: it should have a table [[{_TABLES}]] for each model")
    return tables


def _by_key(command: click.Command) -> dict[str, click.Parameter]:
    """What a file may say: the name of each option, and `model` for the argument."""
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            found[_MODEL] = parameter
        elif parameter.name != "config":
            found |= {option.removeprefix("--"): parameter for option in parameter.opts}
    return found


def _is_of_a_model(parameter: click.Parameter) -> bool:
    if isinstance(parameter, click.Argument):
        return True
    return isinstance(parameter, SectionedOption) and parameter.section != GATEWAY


def _normal(key: str) -> str:
    return key.replace("_", "-")


def _parsed(
    options: Mapping[str, click.Parameter], content: Mapping[str, Any], where: str, whose: str
) -> Iterator[tuple[str, Any]]:
    """Each parameter's name and value. ConfigError for unknown keys, those said twice, and values of a wrong type."""
    said: dict[str, str] = {}
    for key, value in content.items():
        parameter = options.get(_normal(key))
        if parameter is None:
            near = difflib.get_close_matches(_normal(key), options, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{where}{key} is no option of {whose}{hint}")
        assert parameter.name is not None
        if parameter.name in said:
            raise ConfigError(f"{where}{key} is there as {said[parameter.name]} too: say one of them")
        said[parameter.name] = key
        yield parameter.name, _checked(parameter, value, f"{where}{key}", is_secret=_normal(key) in _SECRETS)


def _checked(parameter: click.Parameter, value: Any, where: str, *, is_secret: bool) -> Any:
    """`value` in the form that click takes from a map of defaults."""
    if not parameter.multiple and parameter.nargs == 1:
        return _one(parameter, value, where, is_secret=is_secret)
    values = value if isinstance(value, list) else [value]
    parts = [_one(parameter, part, where, is_secret=is_secret) for part in values]
    return tuple(quoted(part) for part in parts) if parameter.callback is not None else tuple(parts)


def _one(parameter: click.Parameter, value: Any, where: str, *, is_secret: bool) -> Any:
    types, kind = _kind(parameter)
    is_right = type(value) in types
    if isinstance(parameter.type, click.Choice):
        kind = f"one of {', '.join(map(str, parameter.type.choices))}"
        is_right = value in parameter.type.choices
    if not is_right:
        raise ConfigError(f"{where} should be {kind}{'' if is_secret else f', not {value!r}'}")
    return value


def _kind(parameter: click.Parameter) -> tuple[tuple[type, ...], str]:
    """Which types of TOML's an option takes, and what such values are called."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return (bool,), "true or false"
    if parameter.type is click.INT:
        return (int,), "a whole number"
    if parameter.type is click.FLOAT:
        return (int, float), "a number"
    return (str,), "a text"
