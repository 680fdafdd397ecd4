"""`rosebed ivy`: the HTTP gateway alone, for inference servers elsewhere."""

from collections.abc import Callable

import click

from rosebed.cli.options import SectionedCommand, config_options
from rosebed.ivy.config import IvyConfig, ModelConfig


@click.command(cls=SectionedCommand)
@config_options(ModelConfig, "model", section="Model", exclude=("pooling",))  # inference servers pool
@config_options(IvyConfig, "ivy", section="Gateway", exclude=("models",))
def command(model: Callable[[], ModelConfig], ivy: Callable[..., IvyConfig]) -> None:
    """Run the HTTP gateway in front of running inference servers.

    \b
    Examples:
      rosebed ivy --tulip 10.0.0.5:50051
      rosebed ivy --tulip gpu-1:50051,gpu-2:50051 --workers 8 --host 0.0.0.0
    """
    config = ivy(models=(model(),))
    from rosebed.ivy.server import serve

    serve(config)
