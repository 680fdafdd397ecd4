"""`rosebed serve`: one machine's gateway and inference servers, as child processes under a supervisor."""

import asyncio
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from rosebed.cli.config_file import GATEWAY, ConfigurableCommand, ModelTable, model_tables
from rosebed.cli.fleet import FleetModel, child, plan_model, replica_options, tulip_children
from rosebed.cli.model import hub_options
from rosebed.cli.options import config_from, config_values, options_for
from rosebed.cli.served_names import check_served_names
from rosebed.cli.supervisor import ChildCommand, Supervisor
from rosebed.cli.tei_environment import TeiEnvironment, read_tei
from rosebed.cli.toml import toml_text
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.core.ports import reserved_port, unix_listener
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.rose.config import EngineConfig
from rosebed.tulip.config import TulipConfig

GRACE_S = 10.0
"""Time each child has to finish what is in flight."""
_POLL_S = 0.1
_SOCKET_FOLDER = re.compile(r"[\w./-]{1,70}", re.ASCII)
"""Folders that a socket's address may name: gRPC splits it at commas, and the system takes some 100 bytes."""
_TEI = "rosebed.tei"

log = logging.getLogger(__name__)


class ServeCommand(ConfigurableCommand):
    """Knows the environment of text-embeddings-inference too."""

    def foreign_values(self, ctx: click.Context) -> Mapping[str, Any]:
        found = read_tei(os.environ)
        ctx.meta[_TEI] = found
        return found.values


@click.command(cls=ServeCommand, has_models=True)
@click.argument("models", metavar="[NAME=]MODEL...", nargs=-1)
@hub_options
@options_for(ModelOverrides, section="Model")
@options_for(ModelConfig, section="Model", exclude=("tulips", "model", "revision", "overrides"))
@options_for(IvyConfig, section=GATEWAY, exclude=("models",))
@replica_options
@options_for(TulipConfig, section="Inference server", exclude=("host", "port"))
@options_for(EngineConfig, section="Engine")
@click.pass_context
def command(ctx: click.Context, models: tuple[str, ...], **values: Any) -> None:
    """Serve each MODEL over HTTP on this machine.

    Starts the gateway (Ivy) and the inference servers (Tulip) of each model, says when they are ready, starts again
    what dies, and ends with a non-zero exit code when that does not help. Ctrl-C or SIGTERM finishes what is in flight
    and stops.

    \b
    Examples:
      rosebed serve sentence-transformers/all-MiniLM-L6-v2
      rosebed serve ./my-model --port 9000 --workers 4 --api-key SECRET
      rosebed serve BAAI/bge-m3 --served-model-name bge --devices cuda:0,cuda:1
      rosebed serve minilm=sentence-transformers/all-MiniLM-L6-v2 ./my-model --replicas 2
      rosebed serve --config rosebed.toml
    """
    for note in _tei(ctx).notes:
        log.warning("%s", note)
    _check_gateway(values)
    with _socket_folder() as directory:
        addresses = (f"unix:{directory}/tulip-{number}.sock" for number in count())
        fleet = _planned(ctx, models, values, addresses)
        gateway = config_from(IvyConfig, values, models=tuple(model.served for model in fleet))
        with _reserved(gateway) as port:
            gateway = replace(gateway, port=port)
            commands = [*tulip_children(fleet), _ivy_child(gateway, Path(directory))]
            sys.exit(asyncio.run(_supervise(commands, gateway, fleet)))


def _check_gateway(values: dict[str, Any]) -> None:
    """ConfigError for what can be told before any model is looked at, which may take a download."""
    config_from(IvyConfig, values, models=(ModelConfig(tulips=("unix:to-be",)),))


def _tei(ctx: click.Context) -> TeiEnvironment:
    return ctx.meta[_TEI]


def _planned(
    ctx: click.Context, models: tuple[str, ...], values: dict[str, Any], addresses: Iterator[str]
) -> list[FleetModel]:
    """Each MODEL, or each table of the config file."""
    tables = model_tables(ctx)
    if tables and models:
        raise ConfigError(f"MODEL {models[0]} and [[models]] in the config file: say one of them")
    if tables:
        for table in tables:
            if len(table.values["models"]) != 1:
                raise ConfigError(f"{table.where}: model should say which one it is")
        fleet = [_of_table(table, addresses) for table in tables]
        _check_names([table.where for table in tables], fleet, "served-model-name tells them apart")
        return fleet
    if not models:
        raise click.UsageError("Missing argument 'MODEL'.", ctx)
    if len(models) > 1 and values["served_model_names"]:
        raise ConfigError("--served-model-name is of one model: with several, write NAME=MODEL, or use a config file")
    fleet = [plan_model(values, model, addresses) for model in models]
    _check_names([f"MODEL {model}" for model in models], fleet, "NAME=MODEL tells them apart")
    return fleet


def _of_table(table: ModelTable, addresses: Iterator[str]) -> FleetModel:
    with table.blamed():
        return plan_model(table.values, table.values["models"][0], addresses)


def _check_names(where: list[str], fleet: list[FleetModel], remedy: str) -> None:
    check_served_names(zip(where, (model.served.served_model_names for model in fleet), strict=True), remedy)


@contextmanager
def _reserved(gateway: IvyConfig) -> Generator[int]:
    """The gateway's port, kept for it while its processes come and go; that of a Unix socket means nothing."""
    if gateway.uds is None:
        with reserved_port(gateway.host, gateway.port) as port:
            yield port
    else:
        with unix_listener(gateway.uds):
            pass  # nobody else listens there, and somebody can
        yield gateway.port


def _socket_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder of our own, where temporary files go if its name can be an address, else in /tmp."""
    try:
        usual = tempfile.gettempdir()
        parent = usual if _SOCKET_FOLDER.fullmatch(usual) else "/tmp"  # noqa: S108 - a folder with a name of its own
        return tempfile.TemporaryDirectory(prefix="rosebed-", dir=parent)
    except OSError as error:
        raise ConfigError(f"TMPDIR: no folder for the servers' sockets can be made: {error}") from error


def _ivy_child(gateway: IvyConfig, directory: Path) -> ChildCommand:
    """The gateway, told its settings in a file of `directory`, which also keeps what it would leave if it is killed.

    But for the key, which is in its environment: nobody else can read it there, and no file is left with it.
    """
    models = [config_values(model) for model in gateway.models]
    config = directory / "ivy.toml"
    config.write_text(
        toml_text(config_values(gateway, exclude=("models", "api_key")), {"models": models}), encoding="utf-8"
    )
    key = {} if gateway.api_key is None else {"ROSEBED_IVY_API_KEY": gateway.api_key}
    return child("ivy", ["--config", str(config)], {"TMPDIR": str(directory), **key})


async def _supervise(commands: list[ChildCommand], gateway: IvyConfig, fleet: list[FleetModel]) -> int:
    started_s = time.monotonic()
    url = _url(gateway) if gateway.uds is None else f"unix:{gateway.uds}"

    async def report_readiness() -> None:
        num_ready = await _wait_ready(gateway)
        names = ", ".join(name for model in gateway.models for name in model.served_model_names)
        num_replicas = sum(len(model.replicas) for model in fleet)
        of_all = f", {num_ready} of {num_replicas} inference servers" if num_replicas > len(fleet) else ""
        click.echo(f"rosebed: serving {names} at {url} after {time.monotonic() - started_s:.1f} s{of_all}")

    return await Supervisor(commands, become_ready=report_readiness, grace_s=GRACE_S).run()


def _url(gateway: IvyConfig) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{gateway.port}" if ":" in host else f"http://{host}:{gateway.port}"


async def _wait_ready(gateway: IvyConfig) -> int:
    """The number of inference servers that are ready, once there is one for each model."""
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=gateway.uds)
    url = _url(gateway) if gateway.uds is None else "http://ivy"
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        while True:
            try:
                answer = await client.get(f"{url}/ready")
                if answer.status_code == 200:
                    return answer.json()["replicas"]
            except httpx.TransportError:
                pass  # not listening yet
            await asyncio.sleep(_POLL_S)
