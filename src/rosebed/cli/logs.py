"""Logging of every command, and the option that says how much of it."""

import logging

import click

from rosebed.core.logs import LINE

LEVELS = click.Choice(["debug", "info", "warning", "error"])


def set_level(level: str) -> None:
    """Write messages of `level` and above to stderr."""
    logging.basicConfig(format=LINE)
    logging.getLogger().setLevel(level.upper())
    # httpx reports each request at info.
    logging.getLogger("httpx").setLevel(logging.WARNING if level == "info" else logging.NOTSET)


def current_level() -> str:
    """What a child process should be told."""
    return logging.getLevelName(logging.getLogger().level).lower()


def log_level_option() -> click.Option:
    """--log-level after a command, where it counts more than before it. The command's function does not receive it."""

    def apply(_context: click.Context, _option: click.Parameter, level: str | None) -> None:
        if level is not None:
            set_level(level)

    return click.Option(["--log-level"], type=LEVELS, callback=apply, expose_value=False, help="As before the command.")
