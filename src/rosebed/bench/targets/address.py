"""The `--target` of a run, parsed. Opens nothing."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from rosebed.core.errors import ConfigError


class TargetKind(StrEnum):
    """Which wire or library answers."""

    GRPC = "grpc"
    """A Rosebed inference server."""
    OPENAI = "openai"
    """Any server with OpenAI's embeddings route: Rosebed, vLLM, TEI, Infinity, SGLang."""
    TEI = "tei"
    """The routes of Hugging Face's text-embeddings-inference."""
    EMBEDDER = "inprocess"
    """Rosebed's `Embedder`, text to vectors."""
    ENGINE = "engine"
    """Bare `Engine.step`, token ids to vectors."""
    SENTENCE_TRANSFORMERS = "st"
    """The sentence-transformers library."""

    @property
    def is_in_process(self) -> bool:
        """Whether the model runs inside the client's own process."""
        return self in (TargetKind.EMBEDDER, TargetKind.ENGINE, TargetKind.SENTENCE_TRANSFORMERS)


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """One parsed target."""

    kind: TargetKind
    location: str
    """HOST:PORT or unix:PATH for gRPC, a URL for HTTP, a folder or hub id for what runs in process."""


_FORMS = (
    "grpc://HOST:PORT, unix:PATH, http://HOST:PORT (OpenAI's route), tei+http://HOST:PORT, "
    "inprocess:MODEL, engine:MODEL or st:MODEL"
)


def parse_target(text: str) -> TargetAddress:
    """What `text` names. ConfigError that names the flag if it is none of the forms."""
    scheme, _, rest = text.partition(":")
    if scheme == "unix" and rest:
        return TargetAddress(TargetKind.GRPC, text)
    if scheme in ("http", "https", "tei+http", "tei+https"):
        kind = TargetKind.TEI if scheme.startswith("tei+") else TargetKind.OPENAI
        return TargetAddress(kind, _checked_url(text.removeprefix("tei+"), text))
    if scheme == "grpc" and rest.startswith("//"):
        return TargetAddress(TargetKind.GRPC, _checked_host_port(rest[2:], text))
    if scheme in (TargetKind.EMBEDDER, TargetKind.ENGINE, TargetKind.SENTENCE_TRANSFORMERS) and rest:
        return TargetAddress(TargetKind(scheme), rest)
    raise ConfigError(f"--target {text!r} should be one of {_FORMS}")


def _checked_url(url: str, text: str) -> str:
    try:
        parts = urlsplit(url)
        has_address = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_address = False
    if not has_address:
        raise ConfigError(f"--target {text!r}: the URL should name a host, and a port from 1 to 65535 if any")
    return url.rstrip("/")


def _checked_host_port(location: str, text: str) -> str:
    host, _, port = location.rstrip("/").rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ConfigError(f"--target {text!r} should be grpc://HOST:PORT, with a port from 1 to 65535")
    return f"{host}:{port}"
