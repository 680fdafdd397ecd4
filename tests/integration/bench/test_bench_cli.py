"""`rosebed bench` as a command: what it prints, writes and exits with."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_live import STEP_TIME, running_tulip
from bench_reports import check_schema

from rosebed.testing import FakeEngine

QUICK = ("--duration", "0.1", "--warmup", "0.01")


@pytest.fixture(scope="module")
def tulip() -> Iterator[str]:
    with running_tulip(FakeEngine(step_time=STEP_TIME)) as address:
        yield address


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rosebed", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_tables_then_one_line_of_json_last(tulip: str, tmp_path: Path) -> None:
    picture = tmp_path / "latency.png"
    done = bench(
        "latency", "--target", f"grpc://{tulip}", "--tokens", "8,16", *QUICK, "--plot", str(picture), "--seed", "3"
    )
    assert (done.returncode, done.stderr) == (0, "")
    *table, line = done.stdout.splitlines()
    value = check_schema(line)
    assert [case["tokens_per_input"] for case in value["cases"]] == [8, 16]
    assert (value["settings"]["seed"], value["settings"]["duration"]) == (3, 0.1)
    assert value["environment"]["command"].startswith("rosebed bench latency --target grpc://")
    assert table[0] == "latency: rosebed tulip 0.1.0, fake (float32, none)"
    assert any(row.startswith("1 × 16 tokens, 1 client ") for row in table)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_failed_requests_make_the_exit_code() -> None:
    with running_tulip(FakeEngine(step_time=STEP_TIME), max_queued_sequences=1) as address:
        target = ("--target", f"grpc://{address}", "--processes", "1")
        done = bench("concurrency", *target, "--tokens", "4", "--clients", "3", *QUICK)
        assert done.returncode == 1
        assert check_schema(done.stdout.splitlines()[-1])["cases"][0]["num_failed"] > 0
        # Overload is what a sweep looks for.
        done = bench("sweep", *target, "--lengths", "fixed:4", "--rate", "2000", *QUICK)
        assert done.returncode == 0, done.stderr
        assert check_schema(done.stdout.splitlines()[-1])["highest_rate"] is None


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("latency", "--target", "grpc://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("latency", "--target", "gpu-1:50051"), 2, "--target 'gpu-1:50051' should be one of"),
        (("latency", "--target", "grpc://h:1", "--tokens", "12,x"), 2, "--tokens"),
        (("latency", "--target", "grpc://h:1", "--duration", "0"), 2, "--duration should be above 0"),
        (("open", "--target", "grpc://h:1", "--plot", "none/x.png"), 2, "--plot none/x.png: there is no folder"),
        (("latency",), 2, "--target"),
        (("speed", "--target", "grpc://h:1"), 2, "'speed' is not one of"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(arguments: tuple[str, ...], exit_code: int, says: str) -> None:
    done = bench(*arguments, "--timeout", "5")
    assert done.returncode == exit_code, done.stderr
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
