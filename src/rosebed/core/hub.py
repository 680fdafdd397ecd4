"""Where a model comes from: a folder on this machine, or a repository on the Hugging Face hub.

Reads nothing inside the folder. `huggingface_hub` obeys HF_HUB_OFFLINE, HF_ENDPOINT, HF_HOME and HF_TOKEN by itself.
"""

import re
import reprlib
from os import PathLike, fspath
from pathlib import Path

from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.extras import needs_extra

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

_CONFIGURATION = ["*.json", "*.txt", "*.model"]
_HEADS = ["*_Dense/pytorch_model.bin", "sparse_linear.pt", "colbert_linear.pt"]
"""Small pickles that stay pickles where the body was converted to safetensors."""
_SAFETENSORS = ["*.safetensors"]
_PICKLES = ["pytorch_model*.bin"]
_OTHER_FRAMEWORKS = ["onnx/*", "openvino/*", "coreml/*", "original/*"]
"""Copies of the weights for other runtimes; they would double the download."""


def resolve_model_folder(model: str | PathLike[str], *, revision: str | None = None, token: str | None = None) -> Path:
    """The folder `model` names, downloaded first where it is a hub id.

    `revision` is a branch, tag or commit of the hub repository and means nothing for a folder.
    CheckpointError if `model` is neither a folder nor a repository that can be had, ConfigError if it is no name.
    """
    name = fspath(model) if isinstance(model, str | PathLike) else model  # pyright: ignore[reportUnnecessaryIsInstance]
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        raise ConfigError(f"MODEL should be a folder or a hub id, not {name!r}")
    try:
        folder = Path(name).expanduser()
        is_folder, exists = folder.is_dir(), folder.exists()
    except (OSError, RuntimeError) as error:  # a name too long, a folder not to be entered, ~ of nobody
        raise CheckpointError(f"MODEL {reprlib.repr(name)} is not a folder here: {error}") from error
    if is_folder:
        return folder
    if not _HUB_ID.fullmatch(name) or exists:
        raise CheckpointError(
            f"MODEL {name!r} is not a folder here{_looked_in(folder)}, and not written like a hub id (owner/name)"
        )
    return _download(name, revision, token)


def _looked_in(folder: Path) -> str:
    return "" if folder.is_absolute() else f" (looked for in the current folder, {Path.cwd()})"


def _download(model: str, revision: str | None, token: str | None) -> Path:
    with needs_extra("downloading a model", "serve"):
        import huggingface_hub
    hub = huggingface_hub.HfApi(token=token)

    def snapshot(patterns: list[str]) -> Path:
        path = hub.snapshot_download(
            model, revision=revision, allow_patterns=patterns, ignore_patterns=_OTHER_FRAMEWORKS
        )
        return Path(path)

    try:
        folder = snapshot(_CONFIGURATION + _HEADS + _SAFETENSORS)
        # Pickles are loaded only where there is nothing better, so they are fetched only then.
        return folder if any(folder.glob("*.safetensors")) else snapshot(_CONFIGURATION + _HEADS + _PICKLES)
    except Exception as error:  # huggingface_hub's errors have no common root, and all mean the same here
        at = f" at revision {revision!r}" if revision else ""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"MODEL {model!r} is not a folder here{_looked_in(Path(model))}, and the hub does not give it{at}: {reason}"
        ) from error
