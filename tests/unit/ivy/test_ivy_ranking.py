"""What a ranking is ordered by."""

import numpy as np

from rosebed.ivy.dialects.ranking import best
from rosebed.ivy.request import Timings
from rosebed.ivy.scoring_request import ScoringAnswer


def test_scores_that_an_activation_made_equal_are_ranked_by_what_it_was_given() -> None:
    logits = np.array([74, 58, 104, 58, 122], np.float32)
    answer = ScoringAnswer(
        scores=np.ones(5, np.float32),  # the sigmoid of each
        order=logits,
        model="m",
        num_tokens=5,
        truncated_from={},
        timings=Timings(tokenization_ns=0, queue_ns=0, compute_ns=0),
    )
    assert best(answer, None) == [(4, 1.0), (2, 1.0), (0, 1.0), (1, 1.0), (3, 1.0)]
    assert best(answer, 1) == [(4, 1.0)]
