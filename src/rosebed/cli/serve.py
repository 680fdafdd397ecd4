"""`rosebed serve`: one machine's Ivy and Tulip, as two child processes under a supervisor."""

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

import click

from rosebed.cli.logs import current_level
from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import SectionedCommand, config_arguments, config_options
from rosebed.cli.supervisor import ChildCommand, Supervisor
from rosebed.core.errors import ConfigError
from rosebed.core.ports import reserved_port
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.proto.sizes import check_message_bytes
from rosebed.rose.config import EngineConfig, check_config
from rosebed.tulip.config import TulipConfig

GRACE_S = 10.0
"""Time each child has to finish what is in flight."""
_POLL_S = 0.1
_SOCKET_FOLDER = re.compile(r"[\w./-]{1,70}", re.ASCII)
"""Folders that a socket's address may name: gRPC splits it at commas, and the system takes some 100 bytes."""


@click.command(cls=SectionedCommand)
@model_options
@config_options(ModelConfig, "served", section="Model", exclude=("tulips", "model", "revision", "overrides"))
@config_options(IvyConfig, "ivy", section="Gateway", exclude=("models",))
@config_options(TulipConfig, "tulip", section="Inference server", exclude=("host", "port"))
@config_options(EngineConfig, "engine", section="Engine")
def command(
    model: ChosenModel,
    served: Callable[..., ModelConfig],
    ivy: Callable[..., IvyConfig],
    tulip: Callable[..., TulipConfig],
    engine: Callable[[], EngineConfig],
) -> None:
    """Serve MODEL over HTTP on this machine.

    Starts the gateway (Ivy) and the inference server (Tulip), says when they are ready, starts again what dies, and
    ends with a non-zero exit code when that does not help. Ctrl-C or SIGTERM finishes what is in flight and stops.

    \b
    Examples:
      rosebed serve sentence-transformers/all-MiniLM-L6-v2
      rosebed serve ./my-model --port 9000 --workers 4 --api-key SECRET
      rosebed serve BAAI/bge-m3 --served-model-name bge --auto-truncate
    """
    spec = model.spec()
    library, server = engine(), tulip()
    check_config(library)
    from rosebed.ivy.model import model_name, with_defaults
    from rosebed.text.tokenizer import check_tokenizer

    check_message_bytes(server.max_message_bytes, spec.max_length)
    check_tokenizer(spec)
    with _socket_folder() as directory:
        address = f"unix:{directory}/tulip.sock"
        shown = served(tulips=(address,), model=str(spec.folder), overrides=model.overrides)
        with_defaults(spec, shown)
        shown = replace(shown, served_model_names=shown.served_model_names or (model_name(model.name),))
        gateway = ivy(models=(shown,))
        with reserved_port(gateway.host, gateway.port) as port:
            gateway = replace(gateway, port=port)
            tulip_options = config_arguments(model.overrides, server, library)
            commands = [
                _child("tulip", ["--host", address, *tulip_options, "--", str(spec.folder)]),
                _child(
                    "ivy",
                    config_arguments(shown, gateway, exclude=("api_key", "pooling", "models")),
                    **_ivy_environment(gateway, directory),
                ),
            ]
            sys.exit(asyncio.run(_supervise(commands, gateway)))


def _socket_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder of our own, where temporary files go if its name can be an address, else in /tmp."""
    try:
        usual = tempfile.gettempdir()
        parent = usual if _SOCKET_FOLDER.fullmatch(usual) else "/tmp"  # noqa: S108 - a folder with a name of its own
        return tempfile.TemporaryDirectory(prefix="rosebed-", dir=parent)
    except OSError as error:
        raise ConfigError(f"TMPDIR: no folder for the servers' socket can be made: {error}") from error


async def _supervise(commands: list[ChildCommand], gateway: IvyConfig) -> int:
    started_s = time.monotonic()
    url = _url(gateway)

    async def report_readiness() -> None:
        await _wait_ready(url)
        names = ", ".join(name for model in gateway.models for name in model.served_model_names)
        click.echo(f"rosebed: serving {names} at {url} after {time.monotonic() - started_s:.1f} s")

    return await Supervisor(commands, become_ready=report_readiness, grace_s=GRACE_S).run()


def _ivy_environment(gateway: IvyConfig, directory: str) -> dict[str, str]:
    """The key, which others could read on a command line, and `directory`, so that a killed gateway leaves no files."""
    return {"TMPDIR": directory} | ({} if gateway.api_key is None else {"ROSEBED_IVY_API_KEY": gateway.api_key})


def _child(name: str, arguments: list[str], **more: str) -> ChildCommand:
    """A child is told all it needs by its arguments and `more` environment; ours was for `rosebed serve` alone."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ROSEBED_")}
    return ChildCommand(
        name=name,
        arguments=[sys.executable, "-m", "rosebed", "--log-level", current_level(), name, *arguments],
        environment=environment | more,
    )


def _url(gateway: IvyConfig) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.host, gateway.host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{gateway.port}" if ":" in host else f"http://{host}:{gateway.port}"


async def _wait_ready(url: str) -> None:
    import httpx

    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            try:
                if (await client.get(f"{url}/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            await asyncio.sleep(_POLL_S)
