"""What is said beside figures, and when."""

from collections import Counter
from typing import Any

from bench_reports import case

from rosebed.bench.crew import CaseRun
from rosebed.bench.notes import notes_on
from rosebed.bench.requests import RequestShape
from rosebed.bench.samples import Recording, Sample
from rosebed.bench.statistics import figures_of
from rosebed.bench.targets.base import Stages
from rosebed.bench.worker import Prepared


def notes(
    *, answered: int = 200, failed: int = 0, busiest: float = 0.1, num_tokens: int = 8, per_word: float = 1.0,
    **settings: Any,
) -> list[str]:  # fmt: skip
    samples = [Sample(0, 0, 1, 1, 8, 0, False, Stages())] * answered + [
        Sample(0, 0, 1, 1, 8, 0, True, Stages())
    ] * failed
    recording = Recording.of(samples, Counter({"full": failed} if failed else {}), busiest=busiest)
    prepared = Prepared(canned=None, divergence=0, num_tokens=num_tokens, tokens_per_word=per_word)
    of = case(label="it", shapes=(RequestShape((8,)),), **settings)
    run = CaseRun(case=of, recording=recording, null=None, divergence=0, prepared=prepared)
    return list(notes_on(run, figures_of(recording)))


def test_nothing_to_say() -> None:
    assert notes() == []
    assert notes(as_text=True) == []
    assert notes(num_tokens=9, per_word=2) == []  # ids are what they are


def test_each_limit_is_said() -> None:
    assert notes(answered=99) == ["p99 of fewer than 100 requests is the slowest of them"]
    assert notes(failed=3) == ["it: 3 requests failed, 3 of them with: full"]
    assert notes(answered=0, failed=1) == ["it: 1 requests failed, 1 of them with: full"]
    assert notes(as_text=True, num_tokens=9) == ["it: the target counts 9 tokens in a text"]
    assert notes(as_text=True, per_word=4.75) == ["the target counts 4.75 tokens a word: texts were made by that count"]
    (busy,) = notes(busiest=0.93)
    assert busy.startswith("it: a client process used 93% of a core")
