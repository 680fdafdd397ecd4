"""What a reader of a case's figures should be told beside them."""

from collections.abc import Iterator

from rosebed.bench.crew import CaseRun
from rosebed.bench.statistics import Figures

FEW_REQUESTS = 100
BUSY = 0.8
"""Share of a core from which on a client process may be what was measured."""


def notes_on(run: CaseRun, figures: Figures) -> Iterator[str]:
    """One sentence for each thing that limits what the figures say."""
    case, label = run.case, run.case.label
    if figures.num_failed:
        reason, count = run.recording.failures.most_common(1)[0]
        yield f"{label}: {figures.num_failed} requests failed, {count} of them with: {reason}"
    if 0 < figures.num_requests < FEW_REQUESTS:
        yield f"p99 of fewer than {FEW_REQUESTS} requests is the slowest of them"
    if case.as_text and run.prepared.tokens_per_word != 1:
        yield f"the target counts {run.prepared.tokens_per_word:.3g} tokens a word: texts were made by that count"
    if case.as_text and run.prepared.num_tokens != case.shapes[0].lengths[0]:
        yield f"{label}: the target counts {run.prepared.num_tokens} tokens in a text"
    if run.recording.busiest > BUSY:
        yield (
            f"{label}: a client process used {run.recording.busiest:.0%} of a core and may be what was measured: "
            "try more --processes"
        )
