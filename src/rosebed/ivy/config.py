"""What an operator may decide about the gateway. Reads no environment and no files."""

import re
from dataclasses import dataclass, field

from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides

_TARGET = re.compile(r"unix:.+|(\[[\w:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")

_KEY = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class IvyConfig:
    """The gateway's settings, the same for each of its worker processes."""

    tulips: tuple[str, ...]
    """Inference servers to use, HOST:PORT or unix:PATH each."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """TCP port to listen on; 0 takes a free one."""
    workers: int = 1
    """Worker processes, each with its own event loop and tokenizer."""
    model: str | None = None
    """Model folder or hub id that the tokenizer comes from; by default the inference servers say it."""
    revision: str | None = None
    """Branch, tag or commit, where the model is a hub id."""
    overrides: ModelOverrides = field(default=ModelOverrides())
    """What the operator insists on about the model; the inference servers need the same."""
    served_model_names: tuple[str, ...] = ()
    """Names the model answers to; by default its hub id, or its folder's name."""
    api_key: str | None = None
    """Key that clients must send as `Authorization: Bearer KEY`; health checks need none."""
    max_inputs: int = 10_000
    """Most inputs of one request."""
    max_body_bytes: int = 32 << 20
    """Largest request body, in bytes."""
    body_timeout_s: float = 30.0
    """Seconds that a request body may take to come, beside a second for every 4096 bytes."""
    auto_truncate: bool = False
    """Cut inputs that are too long where the request does not say; otherwise they are refused."""

    def __post_init__(self) -> None:
        """ConfigError naming the first field with a bad value."""
        if not self.tulips:
            raise ConfigError("--tulip: at least one inference server HOST:PORT is needed")
        for target in self.tulips:
            _check_target(target)
        if self.api_key == "":
            raise ConfigError("--api-key should not be empty; leave it out to serve without a key")
        if self.api_key is not None and not _KEY.fullmatch(self.api_key):
            raise ConfigError("--api-key should be printable ASCII without blanks around it: headers carry no other")
        if not all(self.served_model_names):
            raise ConfigError("--served-model-name should not be empty")
        _check_range("--port", self.port, 0, 65535)
        _check_range("--workers", self.workers, 1, 1024)
        _check_range("--max-inputs", self.max_inputs, 1, 1 << 31)
        _check_range("--max-body-bytes", self.max_body_bytes, 1, 1 << 40)
        _check_range("--body-timeout-s", self.body_timeout_s, 0.1, 86_400)


def _check_target(target: str) -> None:
    """Names in other forms would be looked up for ever, as the transport reads more into them than we promise."""
    found = _TARGET.fullmatch(target)
    if found is None or (found["port"] is not None and not 1 <= int(found["port"]) <= 65535):
        raise ConfigError(f"--tulip should be HOST:PORT or unix:PATH, not {target!r}")


def _check_range(flag: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(f"{flag} should lie in [{lowest}, {highest}], not be {value}")
