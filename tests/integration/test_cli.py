"""The command line as a user meets it: each test is one process."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from minilm import COSINE, MINILM, RELATED

from rosebed import __version__
from rosebed.cli.app import COMMANDS


def rosebed(
    *arguments: str, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rosebed", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | (environment or {}),
    )


def test_version() -> None:
    assert rosebed("--version").stdout == f"rosebed, version {__version__}\n"


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['rosebed', '--help']; from rosebed.cli import main; main()"
    heavy = "{'torch', 'numpy', 'tokenizers', 'grpc', 'httpx', 'httptools'} & set(sys.modules)"
    checked = f"import sys, atexit; atexit.register(lambda: print('HEAVY', {heavy})); {code}"
    result = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, check=True)
    assert "HEAVY set()" in result.stdout
    best_s = min(_duration_s("--help") for _ in range(5))
    assert best_s < 0.3


def _duration_s(*arguments: str) -> float:
    started_s = time.perf_counter()
    rosebed(*arguments)
    return time.perf_counter() - started_s


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_with_examples(name: str) -> None:
    result = rosebed(name, "--help")
    assert result.returncode == 0
    assert f"rosebed {name} " in result.stdout.partition("Examples:")[2]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve"], "MODEL"),
        (["serve", "/no/such/folder"], "'/no/such/folder' is not a folder here"),
        (["serve", "."], "no config.json"),
        (["serve", MINILM, "--port", "x"], "--port"),
        (["serve", MINILM, "--port", "65536"], "--port"),
        (["serve", MINILM, "--workers", "0"], "--workers"),
        (["serve", MINILM, "--pooling", "max"], "--pooling"),
        (["serve", MINILM, "--max-length", "0"], "--max-length"),
        (["serve", MINILM, "--host", "not a host"], "not a host"),
        (["serve", MINILM, "--api-key", ""], "--api-key"),
        (["serve", MINILM, "--matryoshka", "odd"], "--matryoshka"),
        (["tulip", MINILM, "--dtype", "int4"], "--dtype"),
        (["tulip", "--config", "/no/such.toml"], "--config /no/such.toml: No such file"),
        (["tulip", MINILM, "--port", "70000"], "port"),
        (["ivy"], "--tulip"),
        (["ivy", "--tulip", "127.0.0.1"], "'127.0.0.1'"),
        (["ivy", "--tulip", "127.0.0.1:1", "--token-budget", "9"], "--token-budget"),
        (["encode", MINILM], "TEXT"),
        (["encode", MINILM, "a", "--device", "tpu"], "--device"),
        (["inspect", "/no/such/folder"], "'/no/such/folder' is not a folder here"),
        (["--log-level", "loud", "serve", MINILM], "--log-level"),
        (["train", MINILM], "train"),
    ],
)
def test_a_bad_value_is_named_without_a_traceback(arguments: list[str], named: str) -> None:
    result = rosebed(*arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["serve"], ["ivy", "--tulip", "127.0.0.1:1", "--port", "0", "--model"]])
def test_a_model_without_a_tokenizer_is_refused_before_anything_starts(tmp_path: Path, command: list[str]) -> None:
    for file in Path(MINILM).iterdir():
        if file.name not in ("tokenizer.json", "vocab.txt"):
            (tmp_path / file.name).symlink_to(file)
    result = rosebed(*command, str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {tmp_path} has no tokenizer.json")


def test_options_come_from_the_environment_too() -> None:
    result = rosebed("serve", MINILM, environment={"ROSEBED_SERVE_WORKERS": "0"})
    assert result.returncode == 2
    assert "--workers" in result.stderr


def test_encode_prints_a_line_of_json_for_each_text() -> None:
    result = rosebed("encode", MINILM, *RELATED)
    a, b = map(json.loads, result.stdout.splitlines())
    assert [a["text"], b["text"]] == RELATED
    cosine = sum(x * y for x, y in zip(a["embedding"], b["embedding"], strict=True))
    assert cosine == pytest.approx(COSINE, abs=5e-5)
    assert result.stderr == ""


def test_encode_reads_lines_from_standard_input() -> None:
    options = ["--no-normalize", "--dimensions", "64", "--matryoshka", "any"]
    result = rosebed("encode", MINILM, "-", *options, stdin="one\n\nthree, no newline")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["text"] for line in lines] == ["one", "", "three, no newline"]
    assert len(lines[0]["embedding"]) == 64
    assert sum(x * x for x in lines[0]["embedding"]) > 1.5


def test_encode_names_a_request_that_cannot_be_met() -> None:
    result = rosebed("encode", MINILM, "a", "--dimensions", "64")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: --dimensions: ")
    assert "--matryoshka any" in result.stderr
    unknown = rosebed("encode", MINILM, "a", "--prompt-name", "nope")
    assert (unknown.returncode, unknown.stderr.partition("'nope'")[0]) == (2, "Error: --prompt-name: prompt_name ")


def test_inspect_says_what_was_found_and_where() -> None:
    result = rosebed("inspect", MINILM)
    assert result.returncode == 0
    for found in ("BertModel", "mean", "1_Pooling/config.json", "256", "sentence_bert_config.json"):
        assert found in result.stdout


def test_inspect_fails_where_the_architecture_is_not_served(tmp_path: Path) -> None:
    for path in Path(MINILM).iterdir():
        (tmp_path / path.name).symlink_to(path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["NewModel"]}))
    result = rosebed("inspect", str(tmp_path))
    assert result.returncode == 2
    assert "no (NewModel is not computed here)" in result.stdout
    assert "'NewModel' is not served; these are: BertModel" in result.stderr


def test_a_relative_model_is_looked_for_in_the_current_folder() -> None:
    assert f"looked for in the current folder, {Path.cwd()}" in rosebed("inspect", "./no-such-model").stderr


def test_paths_with_spaces_and_letters_of_the_world(tmp_path: Path) -> None:
    folder = tmp_path / "mein Modell ☃"
    folder.symlink_to(MINILM)
    assert len(rosebed("encode", str(folder), "a").stdout.splitlines()) == 1


@pytest.mark.parametrize("place", ["before", "after"])
def test_log_level_goes_before_or_after_the_command(place: str) -> None:
    level, command = ["--log-level", "info"], ["encode", MINILM, "a"]
    said = rosebed(*level, *command) if place == "before" else rosebed(*command, *level)
    assert said.returncode == 0
    assert " INFO " in said.stderr


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["ivy", "--tulip", "h:1", "--port", "0", "--model"]])
def test_a_limit_without_room_for_text_is_refused_before_anything_starts(command: list[str]) -> None:
    result = rosebed(*command, MINILM, "--max-length", "2")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: --max-length: a limit of 2 tokens")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--bulk-wait-s", "inf"),
        ("--fatal-s", "nan"),
        ("--max-message-bytes", "99999999999"),
        ("--max-message-bytes", "1024"),
        ("--token-budget", "0"),
        ("--num-threads", "99999"),
        ("--device", "tpu"),
    ],
)
def test_the_inference_server_s_options_are_checked_before_it_starts(option: str, value: str) -> None:
    for command in ("serve", "tulip"):
        result = rosebed(command, MINILM, "--port", "0", option, value)
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert option in line
