"""Options made from config classes: names, types, defaults, help, and the way back to a command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from rosebed.cli.options import SectionedCommand, config_arguments, config_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A config inside another."""

    max_length: int | None = None
    """Most tokens."""
    rule: Literal["strict", "lax"] = "strict"
    """Which rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One field of each kind."""

    host: str
    """Where to
    listen."""
    servers: tuple[str, ...] = ()
    """Upstreams."""
    share: float = 0.5
    """A part of all."""
    truncate: bool = False
    """Whether to cut."""
    inner: Inner = field(default=Inner())
    """More."""


def run(arguments: Sequence[str], *, exclude: tuple[str, ...] = (), **decided: Any) -> tuple[int, str, list[Outer]]:
    """Exit code, output and what the command was given."""
    configs: list[Outer] = []

    @click.command(cls=SectionedCommand)
    @config_options(Outer, "outer", section="Server", exclude=exclude)
    def command(outer: Callable[..., Outer]) -> None:
        configs.append(outer(**decided))

    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output, configs


def test_what_is_not_given_is_the_default() -> None:
    assert run(["--host", "a"])[2] == [Outer(host="a")]


def test_every_kind_of_field() -> None:
    given = "--host a --server b:1,c:2 --server d:3 --share 0.25 --truncate --max-length 7 --rule lax"
    inner = Inner(max_length=7, rule="lax")
    expected = Outer(host="a", servers=("b:1", "c:2", "d:3"), share=0.25, truncate=True, inner=inner)
    assert run(given.split())[2] == [expected]


def test_excluded_fields_have_no_option_and_are_the_commands_to_decide() -> None:
    assert run(["--share", "1"], exclude=("host", "inner"), host="b")[2] == [Outer(host="b", share=1)]
    code, output, _ = run(["--host", "a"], exclude=("host", "inner"), host="b")
    assert (code, "--host" in output) == (2, True)


def test_excluded_fields_of_a_config_inside_keep_their_defaults() -> None:
    assert run(["--host", "a", "--max-length", "7"], exclude=("rule",))[2] == [
        Outer(host="a", inner=Inner(max_length=7))
    ]
    assert run(["--host", "a", "--rule", "lax"], exclude=("rule",))[0] == 2
    changed = Outer(host="a", inner=Inner(max_length=7, rule="lax"))
    assert config_arguments(changed, exclude=("rule",)) == ["--host", "a", "--max-length", "7"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--share", "much"], "--share"),
        (["--max-length", "1.5"], "--max-length"),
        (["--rule", "odd"], "--rule"),
        ([], "--host"),
    ],
)
def test_a_bad_value_names_its_option(arguments: list[str], named: str) -> None:
    host = ["--host", "a"] if arguments else []
    code, output, configs = run([*host, *arguments])
    assert (code, configs) == (2, [])
    assert named in output


def test_help_is_the_docstring_under_the_field() -> None:
    help_text = " ".join(run(["--help"])[1].split())
    assert "Server: --host TEXT Where to listen. [required]" in help_text
    assert "--max-length INTEGER Most tokens." in help_text
    assert "--rule [strict|lax] Which rule. [default: strict]" in help_text
    assert "--truncate / --no-truncate Whether to cut. [default: no-truncate]" in help_text


@pytest.mark.parametrize(
    "config",
    [
        Outer(host="a"),
        Outer(host="-a", servers=("a,b", 'c"d', '"', "e f", "line\nbreak", "")),
        Outer(host="a b", servers=("x", "y"), share=0.1, truncate=True, inner=Inner(max_length=1, rule="lax")),
    ],
)
def test_arguments_make_the_config_again(config: Outer) -> None:
    assert run(config_arguments(config))[2] == [config]
    changed = replace(config, host="other")
    assert run(config_arguments(config, exclude=("host",)), exclude=("host",), host="other")[2] == [changed]
