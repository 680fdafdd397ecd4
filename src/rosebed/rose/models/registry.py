"""The class that computes an architecture, imported when asked for."""

from importlib import import_module
from typing import cast

from rosebed.core.errors import CheckpointError
from rosebed.rose.architectures import ARCHITECTURES, why_not_served
from rosebed.rose.models.base import EncoderModel


def model_class(architecture: str) -> type[EncoderModel]:
    """The class that computes `architecture`. CheckpointError if there is none."""
    if complaint := why_not_served(architecture):
        raise CheckpointError(complaint)
    module, _, name = ARCHITECTURES[architecture].partition(":")
    return cast(type[EncoderModel], getattr(import_module(module), name))
