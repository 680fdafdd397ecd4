"""`rosebed tulip`: one inference server, without HTTP."""

from collections.abc import Callable

import click

from rosebed.cli.config_file import ConfigurableCommand
from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import config_options
from rosebed.core.ports import free_port
from rosebed.proto.sizes import check_message_bytes
from rosebed.rose.config import EngineConfig, check_config
from rosebed.tulip.config import TulipConfig


@click.command(cls=ConfigurableCommand)
@model_options
@config_options(TulipConfig, "tulip", section="Inference server")
@config_options(EngineConfig, "engine", section="Engine")
def command(model: ChosenModel, tulip: Callable[[], TulipConfig], engine: Callable[[], EngineConfig]) -> None:
    """Run one inference server: token ids in, vectors out, over gRPC.

    \b
    Examples:
      rosebed tulip BAAI/bge-m3 --host 0.0.0.0 --port 50051
      rosebed tulip ./my-model --device cuda:1
      rosebed tulip --config tulip.toml
    """
    server, library, spec = tulip(), engine(), model.spec()
    check_config(library)
    check_message_bytes(server.max_message_bytes, spec.max_length)
    if not server.host.startswith("unix:"):
        free_port(server.host, server.port)  # before the model is loaded, which may take a minute
    from rosebed.wiring import run_tulip

    run_tulip(spec, library, server)
