"""Runs `rosebed bench` on a target and keeps its last line, with what a comparison needs to know beside it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

QUIET = 0.9
"""Share of its processors that an idle machine leaves idle."""
SAMPLE_S = 0.3
PATIENCE_S = 30.0


def wait_until_quiet() -> bool:
    """Wait, not for ever, until nothing else uses the processors; whether that came about.

    With as many OpenMP threads as processors, anything that runs beside them makes a forward pass several times slower.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        before = _times()
        time.sleep(SAMPLE_S)
        used, idle = (after - then for after, then in zip(_times(), before, strict=True))
        if idle >= QUIET * (used + idle):
            return True
    return False


def _times() -> tuple[int, int]:
    """Ticks that all processors have been used and idle so far."""
    user, nice, system, idle, wait, *others = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return user + nice + system + sum(others), idle + wait


def measure(label: dict[str, Any], scenario: str, target: str, options: Sequence[str], out: Path) -> None:
    """Append one line of JSON to `out`: `label` and the report. A run that fails is said so, and left out."""
    command = [
        sys.executable,
        "-m",
        "rosebed",
        "--log-level",
        "warning",
        "bench",
        scenario,
        "--target",
        target,
        *options,
    ]
    was_quiet = wait_until_quiet()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        print(f"{label}: {scenario} failed", file=sys.stderr, flush=True)
        return
    report = json.loads(lines[-1])
    with out.open("a") as file:
        file.write(json.dumps({**label, "quiet": was_quiet, **report}, ensure_ascii=False) + "\n")
    for case in report["cases"]:
        latency = case["latency_ms"] or {}
        print(
            f"{' '.join(map(str, label.values()))}: {case['label']}: p50 {latency.get('p50')} ms, "
            f"{case['sequences_per_s']:.1f} sequences/s",
            flush=True,
        )
