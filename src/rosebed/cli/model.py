"""The MODEL argument and the options that say which model and how to read it, for every command that loads one."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from rosebed.cli.options import SectionedOption, config_options
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.hub import resolve_model_folder
from rosebed.core.model_spec import ModelOverrides, ModelSpec, resolve_model_spec

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """What the user said of the model."""

    name: str
    """A folder or a hub id."""
    revision: str | None
    hub_token: str | None
    overrides: ModelOverrides

    def folder(self) -> Path:
        """Where it lies, downloaded first where need be. CheckpointError if it cannot be had."""
        return resolve_model_folder(self.name, revision=self.revision, token=self.hub_token)

    def spec(self) -> ModelSpec:
        """What its files say. CheckpointError or ConfigError if it cannot be served."""
        return resolve_model_spec(CheckpointFiles.read(self.folder()), self.overrides)


def model_options(command: Command) -> Command:
    """Add MODEL and its options; the command receives a `ChosenModel` as `model`."""

    @click.argument("model", metavar="MODEL")
    @hub_options
    @config_options(ModelOverrides, "overrides", section="Model")
    @functools.wraps(command)
    def with_model(
        model: str,
        revision: str | None,
        hub_token: str | None,
        overrides: Callable[[], ModelOverrides],
        **values: Any,
    ) -> Any:
        chosen = ChosenModel(name=model, revision=revision, hub_token=hub_token, overrides=overrides())
        return command(model=chosen, **values)

    return with_model  # pyright: ignore[reportReturnType]


def hub_options(command: Command) -> Command:
    """Add the options that say how to have a model from the hub."""
    revision = click.option(
        "--revision", cls=SectionedOption, section="Model", help="Branch, tag or commit, where MODEL is a hub id."
    )
    hub_token = click.option(
        "--hub-token",
        cls=SectionedOption,
        section="Model",
        help="Access token of the hub; by default HF_TOKEN or the saved login.",
    )
    return revision(hub_token(command))
