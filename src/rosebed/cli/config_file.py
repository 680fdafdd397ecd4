"""Options from a TOML file: `--config FILE`, below flags and the environment, above defaults.

Its keys are the command's options by their long names, and `model` for MODEL. Where a command serves several models,
each may have a table `[[models]]` with options of its own. Knows no command's options.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from rosebed.cli.options import SectionedCommand, SectionedOption, quoted
from rosebed.core.errors import ConfigError

GATEWAY = "Gateway"
"""Section of the options that hold for a whole server, not for one of its models."""

_TABLES = "models"
_SECRETS = frozenset({"api-key", "hub-token"})
_META = "rosebed.config_file"


class ConfigurableCommand(SectionedCommand):
    """A command that takes `--config`."""

    def __init__(self, *arguments: Any, has_models: bool = False, **settings: Any) -> None:
        """`has_models` allows tables `[[models]]`, which `model_values` returns."""
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

    def _apply(self, ctx: click.Context, _option: click.Parameter, path: str | None) -> None:
        content = {} if path is None else _read(path)
        tables = content.pop(_TABLES, []) if self.has_models else []
        values = dict(_parsed(_by_key(self), content, f"{path}: ", f"rosebed {ctx.info_name}"))
        foreign = self.foreign_values(ctx)
        ctx.default_map = {**(ctx.default_map or {}), **values, **foreign}
        ctx.meta[_META] = [
            self._table(table, f"{path}: {_TABLES}[{i}]", ctx.info_name or "")
            for i, table in enumerate(_listed(tables, path))
        ]
        ctx.meta[f"{_META}.foreign"] = frozenset(foreign)

    def _table(self, table: Any, where: str, whose: str) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise ConfigError(f"{where} should be a table of options, not {table!r}")
        of_all = {key: parameter for key, parameter in _by_key(self).items() if not _is_of_a_model(parameter)}
        for key in table:
            if _normal(key) in of_all:
                raise ConfigError(f"{where}.{key} is of the whole server: it belongs above the first [[{_TABLES}]]")
        options = {key: parameter for key, parameter in _by_key(self).items() if key not in of_all}
        return dict(_parsed(options, table, f"{where}.", f"a model of rosebed {whose}"))


def model_values(ctx: click.Context) -> list[dict[str, Any]]:
    """For each table `[[models]]` the values of the command's parameters, as its function receives them.

    A table counts more than the rest of the file, flags and the environment more than both.
    """
    foreign = ctx.meta[f"{_META}.foreign"]

    def is_insisted_on(name: str) -> bool:
        given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        return name in foreign or ctx.get_parameter_source(name) in given

    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    return [
        ctx.params
        | {
            name: parameters[name].process_value(ctx, value)
            for name, value in table.items()
            if not is_insisted_on(name)
        }
        for table in ctx.meta[_META]
    ]


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not TOML: {error}") from error


def _listed(tables: Any, path: str | None) -> list[Any]:
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: {_TABLES} should be tables, each with the heading [[{_TABLES}]]")
    return tables


def _by_key(command: click.Command) -> dict[str, click.Parameter]:
    """What a file may say: the name of each option, and `model` for the argument."""
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            found["model"] = parameter
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
    """Each parameter's name and value. ConfigError for unknown keys and values of a wrong type."""
    for key, value in content.items():
        parameter = options.get(_normal(key))
        if parameter is None:
            near = difflib.get_close_matches(_normal(key), options, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{where}{key} is no option of {whose}{hint}")
        assert parameter.name is not None
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
