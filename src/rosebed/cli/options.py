"""Command-line options made from the parts' configs, so that an option is declared once: as a documented field.

Knows no part's config; the commands name them.
"""

import ast
import csv
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from rosebed.cli.logs import log_level_option

Command = TypeVar("Command", bound=Callable[..., Any])
Config = TypeVar("Config")


class SectionedOption(click.Option):
    """An option that knows under which heading `--help` lists it."""

    def __init__(self, *declarations: Any, section: str, **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose `--help` lists its options by section, those without one first. It takes --log-level too."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(log_level_option())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def config_options(
    config_type: type[Any], parameter: str, *, section: str, exclude: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command one option per field of `config_type`, and per field of the configs inside it.

    `--help` lists them under `section`. The command receives `functools.partial(config_type, …)` as `parameter`, to
    call with the fields left out by `exclude`. Fields of the configs inside may be left out too; those keep their
    defaults.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_config(**values: Any) -> Any:
            arguments = _take(config_type, values, exclude)
            return command(**values, **{parameter: functools.partial(config_type, **arguments)})

        return options_for(config_type, section=section, exclude=exclude)(with_config)  # pyright: ignore[reportReturnType]

    return decorate


def options_for(config_type: type[Any], *, section: str, exclude: Collection[str] = ()) -> Callable[[Command], Command]:
    """The same options, whose values the command receives one by one, to give to `config_from`."""

    def decorate(command: Command) -> Command:
        for option in reversed(list(_options(config_type, section, exclude))):
            option(command)
        return command

    return decorate


def config_from(
    config_type: type[Config], values: Mapping[str, Any], *, exclude: Collection[str] = (), **decided: Any
) -> Config:
    """The config that `values` of its options make. `exclude` had no options; `decided` are fields among them."""
    return config_type(**_take(config_type, dict(values), {*exclude, *decided}), **decided)


def config_arguments(*configs: Any, exclude: Collection[str] = ()) -> list[str]:
    """The command line that makes `configs` again, for a child process; what is at its default is left out."""
    named = config_values(*configs, exclude=exclude).items()
    return [argument for name, value in named for argument in _arguments(f"--{name}", value)]


def config_values(*configs: Any, exclude: Collection[str] = ()) -> dict[str, Any]:
    """The same as option's name → value, for a file."""
    found: dict[str, Any] = {}
    for field, value in ((field, getattr(config, field.name)) for config in configs for field in fields(config)):
        if field.name in exclude:
            continue
        if is_dataclass(value):
            found |= config_values(value, exclude=exclude)
        elif value != _default(field):
            found[_flag(field.name, is_many=isinstance(value, tuple)).removeprefix("--")] = value
    return found


def _arguments(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [argument for part in value for argument in (flag, quoted(part))]
    return [flag, str(value)]


def _flag(name: str, *, is_many: bool) -> str:
    return "--" + (name.removesuffix("s") if is_many else name).replace("_", "-")


def _take(config_type: type[Any], values: dict[str, Any], exclude: Collection[str] = ()) -> dict[str, Any]:
    """Remove the options of `config_type` from `values` and return them as its constructor's arguments."""
    arguments: dict[str, Any] = {}
    for field, annotation in _chosen(config_type, exclude):
        if is_dataclass(annotation):
            arguments[field.name] = annotation(**_take(annotation, values, exclude))  # pyright: ignore[reportCallIssue, reportArgumentType]
        else:
            arguments[field.name] = values.pop(field.name)
    return arguments


def _options(
    config_type: type[Any], section: str, exclude: Collection[str] = ()
) -> Iterator[Callable[[Command], Command]]:
    for field, annotation in _chosen(config_type, exclude):
        if is_dataclass(annotation):
            yield from _options(annotation, section, exclude)  # pyright: ignore[reportArgumentType]
        else:
            yield _option(field, annotation, section, _field_help(config_type)[field.name])


def _chosen(config_type: type[Any], exclude: Collection[str]) -> Iterator[tuple[Field[Any], Any]]:
    """Each field and its type, less the None that stands for "not given"."""
    annotations = get_type_hints(config_type)
    for field in fields(config_type):
        if field.name not in exclude:
            yield field, _without_none(annotations[field.name])


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (member for member in get_args(annotation) if member is not types.NoneType)
    return annotation


def _option(field: Field[Any], annotation: Any, section: str, text: str) -> Callable[[Command], Command]:
    is_many = get_origin(annotation) is tuple
    flag = _flag(field.name, is_many=is_many)
    absent: dict[str, Any] = {"required": True} if _default(field) is MISSING else {"default": _default(field)}
    return click.option(
        f"{flag}/--no-{flag[2:]}" if annotation is bool else flag,
        field.name,
        cls=SectionedOption,
        section=section,
        type=_click_type(get_args(annotation)[0] if is_many else annotation),
        multiple=is_many,
        callback=separated if is_many else None,
        **absent,
        show_default=not is_many,
        help=f"{text} Repeat the option or separate by commas." if is_many else text,
    )


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def separated(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of values that commas separate, for an option's callback."""
    try:
        return tuple(part for value in values for part in next(csv.reader([value]), None) or [""])
    except csv.Error as error:
        raise click.BadParameter(str(error)) from error


def quoted(value: str) -> str:
    """`value` for `separated` to read as one, whatever commas and quotes it holds."""
    return '"' + value.replace('"', '""') + '"' if re.search('[,"\\r\\n]', value) else value


def _click_type(annotation: Any) -> Any:
    return click.Choice(get_args(annotation)) if get_origin(annotation) is Literal else annotation


@functools.cache
def _field_help(config_type: type[Any]) -> dict[str, str]:
    """Field name → the docstring under it, on one line."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(config_type))).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        statement.target.id: " ".join(following.value.value.split())
        for statement, following in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }
