"""`rosebed inspect`: what a checkpoint is, before any weight is read."""

import sys

import click

from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import SectionedCommand


@click.command(cls=SectionedCommand)
@model_options
def command(model: ChosenModel) -> None:
    """Say what MODEL is, and which file or flag decides each property.

    Exits with 2 where its architecture is not served.

    \b
    Examples:
      rosebed inspect sentence-transformers/all-MiniLM-L6-v2
      rosebed inspect ./my-model --pooling mean --max-length 512
    """
    from rosebed.rose.architectures import why_not_served
    from rosebed.text.inspect import InspectRow, inspect_model

    spec = model.spec()
    complaint = why_not_served(spec.architecture)
    served = InspectRow(
        "served", f"no ({spec.architecture} is not computed here)" if complaint else "yes", "config.json"
    )
    rows = [served, *inspect_model(spec.folder, model.overrides)]
    field_width = max(len(row.field) for row in rows)
    value_width = max(len(row.value) for row in rows)
    for row in rows:
        click.echo(f"{row.field:{field_width}}  {row.value:{value_width}}  {row.source}".rstrip())
    if complaint:
        click.echo(f"Error: {complaint}", err=True)
        sys.exit(2)
