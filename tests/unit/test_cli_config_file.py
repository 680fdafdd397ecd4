"""Options from a TOML file: what counts more than what, what is refused and in which words, and back to a file."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rosebed.cli.config_file import GATEWAY, ConfigurableCommand, ModelTable, model_tables
from rosebed.cli.options import config_from, options_for
from rosebed.cli.toml import toml_text
from rosebed.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Of a whole server."""

    port: int = 8080
    """Where to listen."""
    wait_s: float = 1.0
    """How long."""
    api_key: str | None = None
    """A secret."""

    def __post_init__(self) -> None:
        if self.port > 65535:
            raise ConfigError(f"--port should lie in [0, 65535], not be {self.port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """Of one model."""

    names: tuple[str, ...] = ()
    """What it is called."""
    max_length: int | None = None
    """Most tokens."""
    rule: Literal["strict", "lax"] = "strict"
    """Which rule."""
    truncate: bool = False
    """Whether to cut."""

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError("--max-length should be at least 1")


Given = tuple[tuple[str, ...], Server, list[tuple[tuple[str, ...], One]]]


def run(
    folder: Path, text: str | None, *arguments: str, environment: Mapping[str, str] | None = None, **foreign: Any
) -> Given:
    """MODEL, the server's config and each model's, with `text` as the config file. Raises what the command raises."""
    found: list[Given] = []

    class Command(ConfigurableCommand):
        def foreign_values(self, ctx: click.Context) -> Mapping[str, Any]:
            return foreign

    @click.command("try", cls=Command, has_models=True)
    @click.argument("models", nargs=-1)
    @options_for(Server, section=GATEWAY)
    @options_for(One, section="Model")
    @click.pass_context
    def command(ctx: click.Context, models: tuple[str, ...], **values: Any) -> None:
        tables: list[tuple[tuple[str, ...], One]] = []
        for table in model_tables(ctx):
            with table.blamed():
                tables.append((table.values["models"], config_from(One, table.values)))
        found.append((models, config_from(Server, values), tables or [(models, config_from(One, values))]))

    config: Sequence[str] = []
    if text is not None:
        (folder / "c.toml").write_text(text)
        config = ["--config", str(folder / "c.toml")]
    result = CliRunner(env={**(environment or {})}).invoke(
        command, [*config, *arguments], auto_envvar_prefix="TRY", catch_exceptions=True
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return found[0]


def test_without_a_file_all_is_as_ever(tmp_path: Path) -> None:
    assert run(tmp_path, None, "m", "--port", "1") == (("m",), Server(port=1), [(("m",), One())])


def test_every_kind_of_value(tmp_path: Path) -> None:
    text = """
        model = "m"
        port = 1
        wait-s = 2
        name = ["a,b", 'c"d']
        max_length = 7
        rule = "lax"
        truncate = true
    """
    expected = One(names=("a,b", 'c"d'), max_length=7, rule="lax", truncate=True)
    assert run(tmp_path, text) == (("m",), Server(port=1, wait_s=2), [(("m",), expected)])
    assert run(tmp_path, 'model = ["m", "n"]\nname = "a"')[2] == [(("m", "n"), One(names=("a",)))]


def test_flags_count_more_than_the_environment_and_that_more_than_the_file(tmp_path: Path) -> None:
    text = 'port = 1\nwait-s = 1.5\nmodel = "of the file"\nmax-length = 1'
    environment = {"TRY_PORT": "2", "TRY_MAX_LENGTH": "2"}
    models, server, [(_, one)] = run(tmp_path, text, "--port", "3", environment=environment)
    assert (models, server.port, server.wait_s, one.max_length) == (("of the file",), 3, 1.5, 2)
    assert run(tmp_path, text, "m")[0] == ("m",)


def test_other_servers_variables_count_more_than_the_file_and_less_than_ours(tmp_path: Path) -> None:
    text = "port = 1\nmax-length = 1\n[[models]]\nmodel = 'a'\nmax-length = 5"
    _, server, [(_, one)] = run(tmp_path, text, port=2, max_length=2)
    assert (server.port, one.max_length) == (2, 2)
    _, server, [(_, one)] = run(tmp_path, text, environment={"TRY_PORT": "3", "TRY_MAX_LENGTH": "3"}, port=2)
    assert (server.port, one.max_length) == (3, 3)


def test_the_file_itself_may_be_named_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("port = 5")
    assert run(tmp_path, None, environment={"TRY_CONFIG": str(tmp_path / "other.toml")})[1].port == 5


def test_tables_count_more_than_what_stands_above_them(tmp_path: Path) -> None:
    text = """
        max-length = 1
        truncate = true
        [[models]]
        model = "a"
        name = "x,y"
        [[models]]
        model = "b"
        max-length = 3
        truncate = false
    """
    a = (("a",), One(names=("x,y",), max_length=1, truncate=True))
    b = (("b",), One(max_length=3))
    assert run(tmp_path, text)[2] == [a, b]
    assert [one.max_length for _, one in run(tmp_path, text, "--max-length", "9")[2]] == [9, 9]
    assert [one.max_length for _, one in run(tmp_path, text, environment={"TRY_MAX_LENGTH": "9"})[2]] == [9, 9]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "c.toml: prot is no option of rosebed try; did you mean port?"),
        ("quite-different = 1", "c.toml: quite-different is no option of rosebed try"),
        ("config = 'x'", "config is no option of rosebed try"),
        ("port = '1'", "port should be a whole number, not '1'"),
        ("port = 1.0", "port should be a whole number, not 1.0"),
        ("port = true", "port should be a whole number, not True"),
        ("wait-s = '1'", "wait-s should be a number, not '1'"),
        ("truncate = 1", "truncate should be true or false, not 1"),
        ("rule = 'odd'", "rule should be one of strict, lax, not 'odd'"),
        ("name = [1]", "name should be a text, not 1"),
        ("model = 1", "model should be a text, not 1"),
        ("port = ", "c.toml is not TOML: "),
        ("api_key = 'x'\nport = 1\nport = 2\n", "(at line 3, column 9): line 3, port"),
        ("port = 1\nport = 2", "(at end of document): line 2, port"),
        ("max-length = 1\nmax_length = 1", "c.toml: max_length is there as max-length too: say one of them"),
        (
            "[[models]]\n[[models]]\nmax_length = 1\nmax-length = 2",
            "c.toml: models[1].max-length is there as max_length too: say one of them",
        ),
        ("models = []", "c.toml: models is empty: it should have a table [[models]] for each model"),
        ("models = 1", "c.toml: models should be tables, each with the heading [[models]]"),
        ("models = [1]", "c.toml: models[0] should be a table of options, not 1"),
        (
            "[[models]]\nmax-lenght = 1",
            "models[0].max-lenght is no option of a model of rosebed try; did you mean max-",
        ),
        ("[[models]]\n[[models]]\nport = 1", "models[1].port is of the whole server: it belongs above"),
        ("[[models]]\nmax-length = 'x'", "models[0].max-length should be a whole number, not 'x'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, text)
    assert says in refused.value.message
    assert str(tmp_path) in refused.value.message


def test_a_line_s_secret_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, "api-key = 'hidden'\napi-key = 'hidden'\n")
    assert refused.value.message.endswith("line 2, api-key")
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        ("--max-length should be 1", "f: models[2].max_length should be 1"),
        ("--max-length: no", "f: models[2].max_length: no"),
        ("--max-length and --name: say one of them", "f: models[2].max_length and --name: say one of them"),
        ("--max: no", "f: models[2]: --max: no"),
        ("--name should be there", "f: models[2]: --name should be there"),
        ("--name: --max-length cuts it", "f: models[2]: --name: --max-length cuts it"),
        ("--name a --max-length 1: no", "f: models[2].max_length: --name a --max-length 1: no"),
        ("--dtype odd: no", "f: dtype odd: no"),
        ("MODEL should be one", "f: models[2].model should be one"),
        ("there should be one", "f: models[2]: there should be one"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_of_its_key(said: str, becomes: str) -> None:
    places = {"max-length": "f: models[2].max_length", "dtype": "f: dtype", "model": "f: models[2].model"}
    table = ModelTable(where="f: models[2]", values={}, places=places)
    with pytest.raises(ConfigError) as refused, table.blamed():
        raise ConfigError(said)
    assert refused.value.message == becomes


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("port = 70000", (), "c.toml: port should lie in [0, 65535], not be 70000"),
        ("wait_s = 1\nmax_length = 0", (), "c.toml: max_length should be at least 1"),
        ("max-length = 0\n[[models]]\nname = 'a'", (), "c.toml: max-length should be at least 1"),
        ("max-length = 0\n[[models]]\nmax_length = -1", (), "c.toml: models[0].max_length should be at least 1"),
        ("port = 70000", ("--port", "70001"), "--port should lie in [0, 65535], not be 70001"),
        ("wait-s = 1", ("--max-length", "0"), "--max-length should be at least 1"),
        ("max-length = 0\n[[models]]", ("--max-length", "-1"), "c.toml: models[0]: --max-length should be at least 1"),
    ],
)
def test_what_a_config_refuses_is_said_of_its_place(
    tmp_path: Path, text: str, arguments: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, text, *arguments)
    assert refused.value.message.replace(f"{tmp_path}/", "") == says


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config /no/such: No such file"):
        run(tmp_path, None, "--config", "/no/such")


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, "api-key = 123456")
    assert refused.value.message.endswith("api-key should be a text")


VALUES = st.one_of(
    st.integers(-(1 << 62), 1 << 62),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
)
TABLES = st.dictionaries(st.sampled_from(["a", "b-c", "d"]), VALUES)


@given(TABLES, st.lists(TABLES, min_size=1, max_size=3))
def test_what_is_written_is_read_again(values: dict[str, Any], tables: list[dict[str, Any]]) -> None:
    assert tomllib.loads(toml_text(values, {"models": tables})) == {**values, "models": tables}
