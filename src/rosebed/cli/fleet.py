"""What `rosebed serve` runs: for each model its names and its inference servers, and their devices and cores."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from rosebed.cli.cores import divided, is_cpu, usable_cores
from rosebed.cli.logs import current_level
from rosebed.cli.model import ChosenModel
from rosebed.cli.options import SectionedOption, config_arguments, config_from, separated
from rosebed.cli.supervisor import ChildCommand
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.ivy.config import ModelConfig
from rosebed.proto.sizes import check_message_bytes
from rosebed.rose.config import EngineConfig, check_config
from rosebed.tulip.config import TulipConfig

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_REPLICAS = 1024


def replica_options(command: Command) -> Command:
    """Add the options that say how many inference servers a model has, and where."""
    replicas = click.option(
        "--replicas",
        cls=SectionedOption,
        section="Inference server",
        type=int,
        default=1,
        show_default=True,
        help="Inference servers of the model, on each of its devices; on the CPU they share out the cores.",
    )
    devices = click.option(
        "--devices",
        cls=SectionedOption,
        section="Inference server",
        multiple=True,
        callback=separated,
        help="Devices that have inference servers of their own, such as cuda:0,cuda:1, in place of --device. "
        "Repeat the option or separate by commas.",
    )
    return replicas(devices(command))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One inference server to be."""

    engine: EngineConfig
    tulip: TulipConfig
    cores: frozenset[int] | None
    """The only ones it may run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetModel:
    """One model and its inference servers. Made of the values of one model's options."""

    chosen: ChosenModel
    folder: Path
    served: ModelConfig
    """As the gateway serves it."""
    replicas: tuple[Replica, ...]

    @property
    def name(self) -> str:
        """The first it answers to."""
        return self.served.served_model_names[0]


def plan_model(values: Mapping[str, Any], source: str, addresses: Iterator[str]) -> FleetModel:
    """The model at `source`, [NAME=]MODEL, with an address for each server. A SetupError for what cannot work.

    `values` are those of its options. It is downloaded if need be.
    """
    name, model = named_source(source)
    chosen = ChosenModel(
        name=model,
        revision=values["revision"],
        hub_token=values["hub_token"],
        overrides=config_from(ModelOverrides, values),
    )
    tulip = config_from(TulipConfig, values, exclude=("host", "port"))
    replicas = _replicas(config_from(EngineConfig, values), tulip, values["replicas"], values["devices"], addresses)
    spec = chosen.spec()
    from rosebed.ivy.model import int8_ranges_of, model_name, with_defaults
    from rosebed.text.tokenizer import check_tokenizer

    check_message_bytes(tulip.max_message_bytes, spec.max_length)
    served = config_from(
        ModelConfig,
        values,
        tulips=tuple(replica.tulip.host for replica in replicas),
        model=str(spec.folder),
        revision=None,
        overrides=chosen.overrides,
    )
    with_defaults(spec, served)
    int8_ranges_of(spec, served)
    check_tokenizer(spec)
    names = served.served_model_names or (name or model_name(model),)
    return FleetModel(
        chosen=chosen, folder=spec.folder, served=replace(served, served_model_names=names), replicas=replicas
    )


def named_source(source: str) -> tuple[str, str]:
    """The name and the model of [NAME=]MODEL; the name is "" if there is none. A folder's own name may hold a `=`."""
    name, equals, model = source.partition("=")
    if not equals or Path(source).expanduser().is_dir():
        return "", source
    if not name or not model:
        raise ConfigError(f"MODEL should be a folder, a hub id, or NAME=MODEL, not {source!r}")
    return name, model


def _replicas(
    engine: EngineConfig, tulip: TulipConfig, per_device: int, devices: tuple[str, ...], addresses: Iterator[str]
) -> tuple[Replica, ...]:
    if not 1 <= per_device <= MAX_REPLICAS:
        raise ConfigError(f"--replicas should lie in [1, {MAX_REPLICAS}], not be {per_device}")
    if devices and engine.device != "auto":
        raise ConfigError("--device and --devices: say one of them")
    if len(set(devices)) < len(devices):
        raise ConfigError(f"--devices names one twice: {', '.join(devices)}; --replicas puts several on each")
    check_config(engine)
    for device in devices:
        _check_device(engine, device)
    engines = [replace(engine, device=device) for device in devices or (engine.device,) for _ in range(per_device)]
    cores = _cores([each.device for each in engines])
    return tuple(
        Replica(
            engine=_with_threads(each, share),
            tulip=replace(tulip, host=next(addresses), metrics_port=_metrics_port(tulip.metrics_port, index)),
            cores=share,
        )
        for index, (each, share) in enumerate(zip(engines, cores, strict=True))
    )


def _check_device(engine: EngineConfig, device: str) -> None:
    """ConfigError about --devices."""
    try:
        check_config(replace(engine, device=device))
    except ConfigError as error:
        raise ConfigError(error.message.replace("--device ", "--devices ", 1)) from error


def _cores(devices: list[str]) -> list[frozenset[int] | None]:
    """The cores of each server; None is all of them: for one that has no other beside it, or computes on a GPU."""
    on_cpu = [index for index, device in enumerate(devices) if is_cpu(device)]
    shares: list[frozenset[int] | None] = [None] * len(devices)
    if len(on_cpu) > 1:
        for index, share in zip(on_cpu, divided(usable_cores(), len(on_cpu)), strict=True):
            shares[index] = share
    return shares


def _with_threads(engine: EngineConfig, cores: frozenset[int] | None) -> EngineConfig:
    return engine if cores is None or engine.num_threads else replace(engine, num_threads=len(cores))


def _metrics_port(port: int | None, index: int) -> int | None:
    """One each: those after the first count on from it."""
    return port + index if port else port


def tulip_children(models: list[FleetModel]) -> Iterator[ChildCommand]:
    """The inference servers of all models."""
    is_only = len(models) == 1 and len(models[0].replicas) == 1
    for model in models:
        for number, replica in enumerate(model.replicas, 1):
            of_several = f" {number} of {len(model.replicas)}" if len(model.replicas) > 1 else ""
            yield child(
                "tulip",
                [
                    *config_arguments(model.chosen.overrides, replica.tulip, replica.engine),
                    "--",
                    str(model.folder),
                ],
                name="tulip" if is_only else f"tulip{of_several} for {model.name}",
                cores=replica.cores,
                group=model.name,
            )


def child(
    command: str,
    arguments: list[str],
    more_environment: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    cores: frozenset[int] | None = None,
    group: str | None = None,
) -> ChildCommand:
    """`rosebed COMMAND`, told all it needs by its arguments and `more_environment`: ours was for `serve` alone."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ROSEBED_")}
    return ChildCommand(
        name=name or command,
        arguments=[sys.executable, "-m", "rosebed", "--log-level", current_level(), command, *arguments],
        environment={**environment, **(more_environment or {})},
        cores=cores,
        group=group,
    )
