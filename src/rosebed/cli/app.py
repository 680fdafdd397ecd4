"""The group of commands, each imported when it is asked for."""

from importlib import import_module

import click

from rosebed import __version__
from rosebed.cli.logs import LEVELS, set_level

COMMANDS = {
    "serve": "Serve models over HTTP on this machine.",
    "ivy": "Run the HTTP gateway in front of running inference servers.",
    "tulip": "Run one inference server, without HTTP.",
    "encode": "Print the vectors of texts.",
    "inspect": "Say what a checkpoint is, and which file decides it.",
    "bench": "Measure a server, or a model in this process.",
    "verify": "Compare a model's vectors with the reference's.",
    "tune": "Measure which kernels are fastest on this GPU.",
}
"""Name → summary, in the order of `--help`. Each is `command` in `rosebed.cli.NAME`, imported when it is asked for."""


class LazyCommands(click.Group):
    """A group that knows its commands by name and summary only, so that `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return import_module(f"rosebed.cli.{cmd_name}").command if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyCommands, context_settings={"auto_envvar_prefix": "ROSEBED", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="rosebed")
@click.option(
    "--log-level",
    type=LEVELS,
    default="info",
    show_default=True,
    help="Least severe messages to write to stderr, here or after the command. encode writes warnings by default.",
)
def app(log_level: str) -> None:
    """Serve text embedding models.

    \b
      rosebed serve BAAI/bge-m3 --port 8080     an HTTP server on this machine
      rosebed encode MODEL "a text"             vectors on the command line
      rosebed inspect MODEL                     what a checkpoint is, and which file says so

    MODEL is a folder, or the name of a repository on the Hugging Face hub. Every option can be given in the
    environment too: --port of `rosebed serve` is ROSEBED_SERVE_PORT.
    """
    set_level(log_level)
