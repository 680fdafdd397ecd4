"""A verification as people read it, and as programs do."""

import json
from dataclasses import asdict

from rosebed.bench.environment import Environment
from rosebed.bench.table import format_table
from rosebed.bench.verify.checks import Check, VerifyReport

SCHEMA_VERSION = 1
_SHOWN = 60
"""Characters of a text."""


def as_text(report: VerifyReport) -> str:
    """A table of the checks, and the texts that went wrong."""
    info = report.info
    rows = [[check.name, f"{check.value:.7g}", _limit(check), _verdict(check)] for check in report.checks]
    lines = [
        f"{info.model} ({info.architecture}, {info.dtype}, {info.device})",
        f"against {report.source}",
        f"{report.num_computed} texts computed, {report.num_texts} tokenized, tolerance {report.tolerance:g}",
        "",
        format_table(["check", "value", "limit", ""], rows),
        "",
        *(f"Other token ids: {_excerpt(text)}" for text in report.other_ids),
        f"Farthest from the reference: {_excerpt(report.worst_text)}",
        f"The {report.what} are {'' if report.passed else 'NOT '}the reference's.",
    ]
    return "\n".join(lines)


def _limit(check: Check) -> str:
    if check.limit is None:
        return "–"
    return f"{'≥' if check.at_least else '≤'} {check.limit:.7g}"


def _verdict(check: Check) -> str:
    return "ok" if check.passed else "FAILED"


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def as_json(report: VerifyReport, environment: Environment) -> str:
    """The whole report on one line."""
    value = {
        "rosebed_verify": SCHEMA_VERSION,
        "passed": report.passed,
        "model": report.info.model,
        "architecture": report.info.architecture,
        "dtype": report.info.dtype,
        "device": report.info.device,
        "reference": report.source,
        "tolerance": report.tolerance,
        "num_texts": report.num_texts,
        "num_computed": report.num_computed,
        "checks": [{**asdict(check), "passed": check.passed} for check in report.checks],
        "worst_text": report.worst_text,
        "other_ids": report.other_ids,
        "environment": asdict(environment),
    }
    return json.dumps(value, ensure_ascii=False)
