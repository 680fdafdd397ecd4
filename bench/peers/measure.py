"""Runs `rosebed bench` on a target and keeps its last line, with what a comparison needs to know beside it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processors import Ticks, wait_until_quiet

MOST_OTHERS = 0.08
"""Share of the processors that others may use while a figure is taken …"""
TRIES = 4
"""… or it is taken again, so often at most."""
PATIENCE_S = 30.0


def measure(label: dict[str, Any], scenario: str, target: str, options: Sequence[str], out: Path) -> None:
    """Append one line of JSON to `out`: `label`, what others used of the processors, and the report.

    A run that fails is said so, and left out. Of several tries the most quiet one counts.
    """
    tries: list[tuple[float, dict[str, Any]]] = []
    while len(tries) < TRIES and not any(others <= MOST_OTHERS for others, _ in tries):
        wait_until_quiet(MOST_OTHERS, patience_s=PATIENCE_S)
        before = Ticks.now()
        report = _run(scenario, target, options)
        if report is None:
            print(f"{label}: {scenario} failed", file=sys.stderr, flush=True)
            return
        tries.append((Ticks.now().others_since(before), report))
    others, report = min(tries, key=lambda one: one[0])
    with out.open("a") as file:
        file.write(json.dumps({**label, "others": round(others, 3), **report}, ensure_ascii=False) + "\n")
    for case in report["cases"]:
        _show(label, case, others)


def _run(scenario: str, target: str, options: Sequence[str]) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "rosebed", "--log-level", "warning", "bench", scenario, "--target", target]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None


def _show(label: dict[str, Any], case: dict[str, Any], others: float) -> None:
    p50 = case["latency_ms"]["p50"] if case["latency_ms"] else None
    print(
        f"{' '.join(map(str, label.values()))}: {case['label']}: p50 {p50} ms, "
        f"{case['sequences_per_s']:.1f} sequences/s, others {others:.0%}",
        flush=True,
    )
