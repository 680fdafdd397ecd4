"""`rosebed inspect`: what a checkpoint is, before any weight is read."""

import click

from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import SectionedCommand


@click.command(cls=SectionedCommand)
@model_options
def command(model: ChosenModel) -> None:
    """Say what MODEL is, and which file or flag decides each property.

    \b
    Examples:
      rosebed inspect sentence-transformers/all-MiniLM-L6-v2
      rosebed inspect ./my-model --pooling mean --max-length 512
    """
    from rosebed.text.inspect import inspect_model

    rows = inspect_model(model.folder(), model.overrides)
    field_width = max(len(row.field) for row in rows)
    value_width = max(len(row.value) for row in rows)
    for row in rows:
        click.echo(f"{row.field:{field_width}}  {row.value:{value_width}}  {row.source}".rstrip())
