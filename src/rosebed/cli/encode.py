"""`rosebed encode`: vectors on the command line, computed in this process."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import click
from click.core import ParameterSource

from rosebed.cli.logs import set_level
from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import SectionedCommand, config_options
from rosebed.core.dimensions import check_dimensions
from rosebed.core.errors import ConfigError, InvalidInput
from rosebed.rose.config import SERVERS_ONLY, EngineConfig
from rosebed.text.prompts import resolve_prompt

_CHUNK = 1024
"""Texts embedded at a time, so that a long input streams through."""


@click.command(cls=SectionedCommand)
@model_options
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.option("--prompt", help="Put this text in front of every TEXT.")
@click.option("--prompt-name", help="Name of a prompt that the checkpoint defines.")
@click.option("--dimensions", type=int, help="Leading components to keep, where the model was trained for it.")
@click.option(
    "--normalize/--no-normalize", default=None, help="Scale vectors to length 1; by default what the checkpoint says."
)
@config_options(EngineConfig, "engine", section="Engine", exclude=SERVERS_ONLY)
def command(
    model: ChosenModel,
    texts: tuple[str, ...],
    prompt: str | None,
    prompt_name: str | None,
    dimensions: int | None,
    normalize: bool | None,
    engine: Callable[[], EngineConfig],
) -> None:
    """Print the vector of each TEXT as a line of JSON: {"text": …, "embedding": […]}.

    A single - reads texts from standard input, one a line.

    \b
    Examples:
      rosebed encode sentence-transformers/all-MiniLM-L6-v2 "a text" "another"
      rosebed encode ./my-model --prompt-name query - < queries.txt > vectors.jsonl
    """
    _quieten(click.get_current_context())
    config, spec = engine(), model.spec()
    try:  # before weights are loaded
        check_dimensions(spec, dimensions)
        resolve_prompt(spec, prompt=prompt, prompt_name=prompt_name)
    except InvalidInput as error:
        raise ConfigError(f"--{(error.param or '').replace('_', '-')}: {error.message}") from error
    import orjson

    from rosebed.embedder import Embedder

    output = sys.stdout.buffer
    with Embedder(spec.folder, overrides=model.overrides, config=config) as embedder:
        for chunk in _chunks(_lines() if texts == ("-",) else texts):
            vectors = embedder.embed(
                chunk, prompt=prompt, prompt_name=prompt_name, dimensions=dimensions, normalize=normalize
            )
            for text, vector in zip(chunk, vectors, strict=True):
                line = {"text": text, "embedding": vector}
                output.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
            output.flush()


def _quieten(context: click.Context) -> None:
    """Warnings only, unless --log-level was given: an answer of one line would drown in reports."""
    given = (context.find_root(), context)
    if all(place.get_parameter_source("log_level") in (None, ParameterSource.DEFAULT) for place in given):
        set_level("warning")


def _lines() -> Iterator[str]:
    for line in sys.stdin:
        yield line.rstrip("\n")


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
