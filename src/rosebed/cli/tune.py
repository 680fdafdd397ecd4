"""`rosebed tune`: which kernels are fastest on this GPU?"""

from pathlib import Path

import click

from rosebed.cli.options import SectionedCommand
from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import ConfigError
from rosebed.core.extras import needs_extra
from rosebed.core.hub import resolve_model_folder
from rosebed.core.model_spec import ModelOverrides, resolve_model_spec
from rosebed.rose.config import EngineConfig, resolve_config


@click.command(cls=SectionedCommand)
@click.argument("model", metavar="[MODEL]", required=False)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, for --tune-table; by default one that later runs on this GPU find by themselves.",
)
@click.option("--device", default="cuda", show_default=True, help="The GPU: cuda, or cuda:N.")
@click.option("--float8", is_flag=True, help="Measure products with float8 weights, for --dtype float8.")
def command(model: str | None, out: Path | None, device: str, float8: bool) -> None:
    """Measure which kernels are fastest on this GPU, and remember it.

    Every product and attention shape of MODEL, or of those that the shipped table lists, is timed with each kernel that
    can compute it. Takes some minutes. Run it on a GPU that does nothing else: never beside a server.

    The table holds for this chip, driver, torch and Triton; with others, the one that ships is used until the next
    `rosebed tune`.

    \b
    Examples:
      rosebed tune BAAI/bge-m3
      rosebed tune BAAI/bge-m3 --float8
      rosebed tune ./my-model --out h200.json && rosebed serve ./my-model --tune-table h200.json
    """
    with needs_extra("rosebed tune", "gpu"):
        import torch
    config = resolve_config(EngineConfig(device=device), "", has_cuda=torch.cuda.is_available())
    if not config.device.startswith("cuda"):
        raise ConfigError(f"--device {device}: rosebed tune measures a GPU")
    spec = None
    if model is not None:
        spec = resolve_model_spec(CheckpointFiles.read(resolve_model_folder(model)), ModelOverrides())
    with needs_extra("rosebed tune", "gpu"):
        from rosebed.rose.cuda.tuning import tune_gpu

    name = config.device if ":" in config.device else f"{config.device}:0"
    click.echo(tune_gpu(spec, device=torch.device(name), float8=float8, out=out))
