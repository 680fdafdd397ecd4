"""Markdown tables of a comparison: `python bench/tables.py bench/results/cpu.jsonl`.

One row per case, one column per peer: the median over rounds, and in brackets how far apart the rounds were. Lines that
were measured while others used the processors are left out.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

Values = dict[str, list[float]]

MOST_OTHERS = 0.1
"""Share of the processors that others may have used."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    measured = [json.loads(line) for line in parser.parse_args().results.read_text().splitlines()]
    lines = [line for line in measured if line.get("others", 0) <= MOST_OTHERS]
    if len(lines) < len(measured):
        print(f"{len(measured) - len(lines)} of {len(measured)} lines left out: others used the processors")
    for group in sorted({(line.get("model"), line.get("over", "http")) for line in lines}, key=str):
        own = [line for line in lines if (line.get("model"), line.get("over", "http")) == group]
        print(f"\n### {' '.join(filter(None, group))}\n\n{table(own)}")


def table(lines: list[dict[str, Any]]) -> str:
    """Latency for one client at a time, else sequences a second too."""
    rows: dict[tuple[str, str], Values] = {}
    for line in lines:
        for case in line["cases"]:
            for name, value in figures(line["scenario"], case).items():
                key = (f"{case['label']}{' (text)' if case['input'] == 'text' else ''}", name)
                rows.setdefault(key, defaultdict(list))[line["peer"]].append(value)
    peers = list(dict.fromkeys(line["peer"] for line in lines))
    header = ["case", "figure", *peers]
    parts = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for (label, name), values in rows.items():
        cells = [shown(values, peer, is_less_better=name.startswith("p")) for peer in peers]
        parts.append("| " + " | ".join([label, name, *cells]) + " |")
    return "\n".join(parts)


def figures(scenario: str, case: dict[str, Any]) -> dict[str, float]:
    """What the tables show of a case."""
    latency = case["latency_ms"]
    if latency is None:
        return {}
    shown = {"p50 ms": latency["p50"], "p99 ms": latency["p99"]}
    if scenario == "throughput":
        shown = {}
    return shown if scenario == "latency" else {**shown, "sequences/s": case["sequences_per_s"]}


def shown(values: Values, peer: str, *, is_less_better: bool) -> str:
    """One cell; the best of a row is bold."""
    if not values.get(peer):
        return "–"
    medians = {name: median(of) for name, of in values.items()}
    best = (min if is_less_better else max)(medians.values())
    text = f"{medians[peer]:,.4g}"
    if medians[peer] == best:
        text = f"**{text}**"
    spread = values[peer]
    return f"{text} ({min(spread):,.4g}…{max(spread):,.4g})" if len(spread) > 1 else text


if __name__ == "__main__":
    main()
