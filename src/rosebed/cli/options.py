"""Command-line options made from the parts' configs, so that an option is declared once: as a documented field.

Knows no part's config; the commands name them.
"""

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(
    config_type: type[Any], parameter: str, *, exclude: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command one option per field of `config_type`; it receives the config built of them as `parameter`."""
    chosen = [field for field in fields(config_type) if field.name not in exclude]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_config(**values: Any) -> Any:
            config = config_type(**{field.name: values.pop(field.name) for field in chosen})
            return command(**values, **{parameter: config})

        for option in reversed([_option(config_type, field) for field in chosen]):
            option(with_config)
        return with_config  # pyright: ignore[reportReturnType]

    return decorate


def config_arguments(config: Any, *, exclude: Collection[str] = ()) -> list[str]:
    """The command line that makes `config` again, for a child process; what is at its default is left out."""
    arguments: list[str] = []
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in exclude and value != _default(field):
            arguments += _arguments(_flag(field.name), value)
    return arguments


def _arguments(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [part for item in value for part in (flag, str(item))]
    return [flag, str(value)]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(config_type: type[Any], field: Field[Any]) -> Callable[[Command], Command]:
    annotation = _without_none(get_type_hints(config_type)[field.name])
    flag = _flag(field.name)
    is_many = get_origin(annotation) is tuple
    return click.option(
        f"{flag}/--no-{flag[2:]}" if annotation is bool else flag,
        field.name,
        type=_click_type(get_args(annotation)[0] if is_many else annotation),
        multiple=is_many,
        default=_default(field),
        show_default=True,
        help=_field_help(config_type)[field.name],
    )


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (member for member in get_args(annotation) if member is not types.NoneType)
    return annotation


def _click_type(annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    return click.Path(path_type=Path) if annotation is Path else annotation


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
