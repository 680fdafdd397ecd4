"""`rosebed verify`: are the vectors of a model right?"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rosebed.cli.model import ChosenModel, model_options
from rosebed.cli.options import SectionedCommand, config_options
from rosebed.cli.progress import ProgressLine
from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelOverrides
from rosebed.rose.config import SERVERS_ONLY, EngineConfig

if TYPE_CHECKING:
    from rosebed.bench.verify.checks import VerifyReport


@click.command(cls=SectionedCommand)
@model_options
@click.option(
    "--golden",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to read the reference from; where there is none yet, it is computed and written there.",
)
@click.option(
    "--tolerance",
    type=float,
    help="Cosine distance from the reference that is allowed; by default 1e-5 in float32, 1e-2 in float8 and in int8, "
    "else 1e-3.",
)
@config_options(EngineConfig, "engine", section="Engine", exclude=SERVERS_ONLY)
def command(
    model: ChosenModel, golden: Path | None, tolerance: float | None, engine: Callable[[], EngineConfig]
) -> None:
    """Compare a model's vectors, or scores, with the reference's: sentence-transformers on the CPU in float32.

    Many texts, from one word to too long, in many languages: token ids, vectors, nearest neighbours, each text alone
    and in a batch, and in another order; of a cross-encoder, the logits of pairs. Prints a table, then the report as
    one line of JSON. Exits with 1 if something is beyond the tolerance. Where a model's vectors pass in bfloat16 on a
    CPU, within 1e-3, it is computed so from then on if --dtype is auto and the processor has AMX.

    \b
    Examples:
      rosebed verify sentence-transformers/all-MiniLM-L6-v2
      rosebed verify ./my-model --golden my-model.npz                  here, with the reference library
      rosebed verify ./my-model --golden my-model.npz --device cuda    there, without it
    """
    if tolerance is not None and not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance should lie in (0, 1), not be {tolerance}")
    config, spec = engine(), model.spec()
    from rosebed.bench.environment import read_environment
    from rosebed.bench.verify.report import as_json, as_text

    if spec.scorer is not None and golden is not None:
        raise ConfigError("--golden holds vectors, and this model scores")
    with ProgressLine() as progress:
        verify = _verify_scores if spec.scorer is not None else partial(_verify_vectors, golden=golden)
        report = verify(
            str(spec.folder), model.overrides, config, tolerance=tolerance, watch=lambda text: progress.show(text, 0)
        )
    click.echo(as_text(report))
    click.echo(as_json(report, read_environment(sys.argv[1:])))
    sys.exit(0 if report.passed else 1)


def _verify_vectors(
    folder: str,
    overrides: ModelOverrides,
    config: EngineConfig,
    *,
    golden: Path | None,
    tolerance: float | None,
    watch: Callable[[str], None],
) -> "VerifyReport":
    from rosebed.bench.verify.checks import verify
    from rosebed.embedder import Embedder
    from rosebed.rose.cpu_dtype import note_verified

    with Embedder(folder, overrides=overrides, config=config) as embedder:
        report = verify(embedder, golden=golden, tolerance=tolerance, watch=watch)
        if (report.info.device, report.info.dtype) == ("cpu", "bfloat16"):
            note_verified(embedder.spec, report.least_cosine if report.passed else 0.0)
        return report


def _verify_scores(
    folder: str,
    overrides: ModelOverrides,
    config: EngineConfig,
    *,
    tolerance: float | None,
    watch: Callable[[str], None],
) -> "VerifyReport":
    from rosebed.bench.verify.scores import verify_scores
    from rosebed.scorer import Scorer

    with Scorer(folder, overrides=overrides, config=config) as scorer:
        return verify_scores(scorer, tolerance=tolerance, watch=watch)
