"""`rosebed ivy`: the HTTP gateway alone, for inference servers elsewhere."""

from typing import Any

import click

from rosebed.cli.config_file import GATEWAY, ConfigurableCommand, ModelTable, model_tables
from rosebed.cli.options import config_from, options_for
from rosebed.cli.served_names import check_served_names
from rosebed.ivy.config import IvyConfig, ModelConfig


@click.command(cls=ConfigurableCommand, has_models=True)
@options_for(ModelConfig, section="Model")
@options_for(IvyConfig, section=GATEWAY, exclude=("models",))
@click.pass_context
def command(ctx: click.Context, **values: Any) -> None:
    """Run the HTTP gateway in front of running inference servers.

    \b
    Examples:
      rosebed ivy --tulip 10.0.0.5:50051
      rosebed ivy --tulip gpu-1:50051,gpu-2:50051 --workers 8 --host 0.0.0.0
      rosebed ivy --config rosebed.toml
    """
    tables = model_tables(ctx)
    models = tuple(map(_of_table, tables)) or (config_from(ModelConfig, values),)
    named = zip((table.where for table in tables), (model.served_model_names for model in models), strict=False)
    check_served_names(named, "served-model-name tells them apart")
    config = config_from(IvyConfig, values, models=models)
    from rosebed.ivy.server import serve

    serve(config)


def _of_table(table: ModelTable) -> ModelConfig:
    with table.blamed():
        return config_from(ModelConfig, table.values)
