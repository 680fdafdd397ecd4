"""What an operator may decide about the gateway. Reads no environment and no files."""

import re
from collections import Counter
from dataclasses import dataclass, field

from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides

_TARGET = re.compile(r"unix:.+|(\[[\w:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")

_ROOT_PATH = re.compile(r"(/[\w.~-]+)+", re.ASCII)
MAX_SOCKET_PATH_BYTES = 107
"""What the system takes."""

_KEY = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model that the gateway serves, and what holds for requests to it. ConfigError names a bad value."""

    tulips: tuple[str, ...] = ()
    """Inference servers that hold the model, HOST:PORT or unix:PATH each; a name is looked up, and again now and then,
    and all its addresses are used."""
    model: str | None = None
    """Model folder or hub id that the tokenizer comes from; by default the inference servers say it."""
    revision: str | None = None
    """Branch, tag or commit, where the model is a hub id."""
    overrides: ModelOverrides = field(default=ModelOverrides())
    """What the operator insists on about the model; the inference servers need the same."""
    served_model_names: tuple[str, ...] = ()
    """Names the model answers to; by default its hub id, or its folder's name."""
    auto_truncate: bool = False
    """Cut inputs that are too long where the request does not say; otherwise they are refused."""
    dimensions: int | None = None
    """Leading components of each vector where the request does not say; none keeps all."""
    default_prompt_name: str | None = None
    """Name of the model's prompt in front of inputs where the request does not say; by default as the checkpoint
    has it."""
    default_prompt: str | None = None
    """Text in front of inputs where the request does not say."""
    int8_ranges: str | None = None
    """JSON file of two lists, the least and the greatest of each component, on which int8 and uint8 are laid as
    sentence-transformers does; none scales each vector by its own largest component."""

    def __post_init__(self) -> None:
        if not self.tulips:
            raise ConfigError("--tulip: at least one inference server HOST:PORT is needed")
        for target in self.tulips:
            _check_target(target)
        if len(set(self.tulips)) < len(self.tulips):
            raise ConfigError("--tulip: the same address is there twice")
        if not all(self.served_model_names):
            raise ConfigError("--served-model-name should not be empty")
        if self.default_prompt is not None and self.default_prompt_name is not None:
            raise ConfigError("--default-prompt and --default-prompt-name: only one of them can be in front")


@dataclass(frozen=True, slots=True, kw_only=True)
class IvyConfig:
    """The gateway's settings, the same for each of its worker processes."""

    models: tuple[ModelConfig, ...]
    """What is served."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """TCP port to listen on; 0 takes a free one."""
    uds: str | None = None
    """Unix socket to listen on instead: its path."""
    root_path: str = ""
    """What a proxy puts before each path, e.g. `/embed`; requests may come with or without it."""
    workers: int = 1
    """Worker processes, each with its own event loop and tokenizer."""
    api_key: str | None = None
    """Key that clients must send as `Authorization: Bearer KEY`; health checks need none."""
    max_inputs: int = 10_000
    """Most inputs of one request."""
    max_body_bytes: int = 32 << 20
    """Largest request body, in bytes."""
    body_timeout_s: float = 30.0
    """Seconds that a request body may take to come, beside a second for every 4096 bytes."""
    resolve_every_s: float = 30.0
    """Seconds between look-ups of inference servers given by name; a lost connection has its name looked up at once."""
    keep_alive_s: float = 75.0
    """Seconds that a connection may lie idle before it is closed."""
    gzip_min_bytes: int = 0
    """Answers from this size on are packed with gzip for clients that accept it; 0 packs none."""
    access_log: bool = False
    """Write a line to stdout for each request."""

    def __post_init__(self) -> None:
        """ConfigError naming the first field with a bad value."""
        if not self.models:
            raise ConfigError("there should be at least one model")
        names = Counter(name for model in self.models for name in set(model.served_model_names))
        for name, times in names.items():
            if times > 1:
                raise ConfigError(f"--served-model-name: {times} models are called {name!r}")
        if self.api_key == "":
            raise ConfigError("--api-key should not be empty; leave it out to serve without a key")
        if self.api_key is not None and not _KEY.fullmatch(self.api_key):
            raise ConfigError("--api-key should be printable ASCII without blanks around it: headers carry no other")
        if self.root_path and not _ROOT_PATH.fullmatch(self.root_path):
            raise ConfigError(f"--root-path should be like /embed, without a slash at its end, not {self.root_path!r}")
        if self.uds is not None and not 0 < len(self.uds.encode()) <= MAX_SOCKET_PATH_BYTES:
            raise ConfigError(f"--uds should be a path of at most {MAX_SOCKET_PATH_BYTES} bytes, not {self.uds!r}")
        _check_range("--port", self.port, 0, 65535)
        _check_range("--workers", self.workers, 1, 1024)
        _check_range("--max-inputs", self.max_inputs, 1, 1 << 31)
        _check_range("--max-body-bytes", self.max_body_bytes, 1, 1 << 40)
        _check_range("--body-timeout-s", self.body_timeout_s, 0.1, 86_400)
        _check_range("--resolve-every-s", self.resolve_every_s, 0.1, 86_400)
        _check_range("--keep-alive-s", self.keep_alive_s, 0.1, 86_400)
        _check_range("--gzip-min-bytes", self.gzip_min_bytes, 0, 1 << 40)


def _check_target(target: str) -> None:
    """Names in other forms would be looked up for ever, as the transport reads more into them than we promise."""
    found = _TARGET.fullmatch(target)
    if found is None or (found["port"] is not None and not 1 <= int(found["port"]) <= 65535):
        raise ConfigError(f"--tulip should be HOST:PORT or unix:PATH, not {target!r}")


def _check_range(flag: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(f"{flag} should lie in [{lowest}, {highest}], not be {value}")
