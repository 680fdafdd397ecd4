"""What a run looks like: tables for people, one line for programs, secrets in neither."""

from pathlib import Path

import pytest
from bench_reports import ENVIRONMENT, case, check_schema, report, result

from rosebed.bench.environment import read_environment, without_secrets
from rosebed.bench.plot import check_plot_path, save_plot
from rosebed.bench.report import as_json, as_text
from rosebed.bench.requests import RequestShape
from rosebed.bench.table import format_table, number
from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane


def test_the_line_follows_the_schema_and_says_what_was_measured() -> None:
    value = check_schema(as_json(report(result(list(range(10, 110)), case())), ENVIRONMENT))
    (only,) = value["cases"]
    assert (only["inputs_per_request"], only["tokens_per_input"], only["clients"], only["rate"]) == (1, 128, 1, None)
    assert only["latency_ms"] == {"p50": 59.0, "p90": 99.0, "p99": 108.0, "max": 109.0, "mean": 59.5}
    assert (only["device_per_step_ms"]["p50"], only["plumbing_ms"]["p50"]) == (2.0, 55.0)
    assert only["stages_ms"]["outside"]["p50"] == 51.0
    assert value["environment"]["gpus"] == ["NVIDIA H200, 580.1, 143771 MiB"]
    assert value["settings"]["duration"] == 5.0
    assert value["notes"] == ["a note"]


def test_a_key_is_in_no_report() -> None:
    both = [render(report(result([1], case())), ENVIRONMENT) for render in (as_json, as_text)]
    assert not any("SECRET" in text for text in both)
    assert without_secrets(["bench", "--api-key", "SECRET", "--hub-token=SECRET", "--seed", "1"]) == [
        "bench", "--api-key", "***", "--hub-token=***", "--seed", "1",
    ]  # fmt: skip


def test_the_schema_holds_for_failures_open_loops_and_sweeps() -> None:
    mixed = case(shapes=(RequestShape((3, 4)), RequestShape((5,), Lane.BULK)), rate=20.0)
    value = check_schema(as_json(report(result([], mixed, failures=2), scenario="open"), ENVIRONMENT))
    (only,) = value["cases"]
    assert (only["inputs_per_request"], only["tokens_per_input"], only["rate"]) == (None, None, 20.0)
    assert (only["latency_ms"], only["num_failed"], only["failures"]) == (None, 2, {"full": 2})
    value = check_schema(as_json(report(result([5], mixed), scenario="sweep", highest_rate=20.0), ENVIRONMENT))
    assert value["highest_rate"] == 20.0


def test_tables_show_every_case() -> None:
    text = as_text(report(result([10] * 99 + [30], case()), result([7], case(label="other"))), ENVIRONMENT)
    lines = text.splitlines()
    assert lines[0] == "latency: rosebed tulip 0.1.0, m (bfloat16, cuda:0)"
    assert lines[1] == "on NVIDIA H200, 580.1, 143771 MiB, 2 CPUs"
    row = next(line for line in lines if line.startswith("1 × 128 tokens, 1 client"))
    assert row.split()[6:] == ["100", "0", "10.00", "10.00", "10.00", "30.00", "3,333.3", "426,667"]
    assert [line.split()[:2] for line in lines if line.startswith("other")] == [
        ["other", "1"],
        ["other", "2.00"],
        ["other", "1.00"],
    ]
    assert "Note: a note." in lines


def test_a_sweep_says_what_it_found() -> None:
    found = as_text(report(result([1], case()), scenario="sweep", highest_rate=40.0), ENVIRONMENT)
    assert "Highest rate that kept p99 within 100 ms: 40 requests/s." in found
    assert "No rate tried kept" in as_text(report(result([1], case()), scenario="sweep"), ENVIRONMENT)


def test_table_alignment() -> None:
    assert format_table(["case", "n"], [["a", "1,000"], ["long", "2"]]) == "case      n\na     1,000\nlong      2"
    assert (number(None), number(1234.5), number(0.126)) == ("–", "1,234.50", "0.13")


def test_the_environment_is_this_machines() -> None:
    environment = read_environment(["bench", "latency"])
    assert environment.command == "rosebed bench latency"
    assert environment.packages["rosebed"]
    assert environment.num_cpus >= 1
    assert environment.date.endswith("+00:00")


def test_a_plot_is_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.png"
    check_plot_path(path)
    save_plot(report(result([10, 20, 30], case()), result([], case(), failures=1)), path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("name", "says"), [("figures.docx", "should end in"), ("none/figures.png", "no folder")])
def test_a_plot_that_cannot_be_written_is_refused_ahead(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--plot .*{says}"):
        check_plot_path(tmp_path / name)
