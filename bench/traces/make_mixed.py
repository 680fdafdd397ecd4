"""Writes the trace of mixed requests that `rosebed bench open` and `sweep` send by default.

    python bench/traces/make_mixed.py > src/rosebed/bench/traces/mixed.json

What it stands for: a search product. Of every hundred requests about 70 are queries (one short input), 18 score or
embed a few passages for somebody who waits, and 12 are documents that nobody waits for, on the bulk lane.
"""

import json
import sys

import numpy as np

SEED = 20260101
NUM_REQUESTS = 1000
LONGEST = 2048

DESCRIPTION = (
    "Requests of a search product: queries, small groups of passages, and bulk documents. Tokens of each input. "
    f"Made by bench/traces/make_mixed.py, seed {SEED}."
)


def main() -> None:
    random = np.random.default_rng(SEED)

    def lengths(count: int, median: float, sigma: float) -> list[int]:
        drawn = random.lognormal(np.log(median), sigma, count)
        return np.clip(np.rint(drawn), 3, LONGEST).astype(int).tolist()

    requests: list[tuple[str, list[int]]] = []
    for kind in random.choice(3, NUM_REQUESTS, p=(0.70, 0.18, 0.12)):
        if kind == 0:
            requests.append(("online", lengths(1, 14, 0.6)))
        elif kind == 1:
            requests.append(("online", lengths(int(random.integers(2, 17)), 160, 0.5)))
        else:
            requests.append(("bulk", lengths(int(random.integers(4, 33)), 300, 0.8)))
    lines = ",\n".join(json.dumps(request, separators=(",", ":")) for request in requests)
    sys.stdout.write(f'{{"description": {json.dumps(DESCRIPTION)},\n"requests": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
