"""What `rosebed serve` would start, from flags, environment and file; nothing is started."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from minilm import MINILM

from rosebed.cli.app import app
from rosebed.cli.fleet import FleetModel, named_source
from rosebed.cli.supervisor import ChildCommand
from rosebed.core.errors import ConfigError
from rosebed.ivy.config import IvyConfig

Plan = Callable[..., "Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """Children and what they are told."""

    commands: list[ChildCommand]
    gateway: IvyConfig
    gateway_file: str

    @property
    def tulips(self) -> list[ChildCommand]:
        return self.commands[:-1]

    def names(self) -> list[str]:
        return [command.name for command in self.commands]

    def value(self, index: int, flag: str) -> str | None:
        """What the inference server with that index is told by `flag`."""
        arguments = list(self.commands[index].arguments)
        return arguments[arguments.index(flag) + 1] if flag in arguments else None


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Runs `rosebed serve`, up to where the supervisor would start."""
    monkeypatch.setattr("rosebed.cli.fleet.usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("rosebed.cli.fleet.is_cpu", {"auto", "cpu"}.__contains__)

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Planned:
        found: list[Planned] = []

        async def supervise(commands: list[ChildCommand], gateway: IvyConfig, _fleet: list[FleetModel]) -> int:
            config = Path(commands[-1].arguments[-1])
            found.append(Planned(commands, gateway, config.read_text()))  # noqa: ASYNC240 - nothing else runs
            return 0

        monkeypatch.setattr("rosebed.cli.serve._supervise", supervise)
        result = CliRunner(env={**(environment or {})}).invoke(app, ["serve", "--port", "0", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return found[0]

    return run


def test_one_model_has_one_server_with_all_cores(plan: Plan) -> None:
    planned = plan(MINILM, "--max-length", "100", "--api-key", "secret")
    assert planned.names() == ["tulip", "ivy"]
    assert (planned.tulips[0].cores, planned.value(0, "--num-threads"), planned.value(0, "--max-length")) == (
        None,
        None,
        "100",
    )
    assert planned.gateway.models[0].served_model_names == ("model",)
    assert "secret" not in planned.gateway_file
    assert "secret" not in " ".join(planned.commands[-1].arguments)
    assert planned.commands[-1].environment["ROSEBED_IVY_API_KEY"] == "secret"


def test_replicas_on_the_cpu_share_out_its_cores(plan: Plan) -> None:
    planned = plan(MINILM, "--replicas", "2", "--metrics-port", "9100")
    assert planned.names() == ["tulip 1 of 2 for model", "tulip 2 of 2 for model", "ivy"]
    assert [command.cores for command in planned.tulips] == [frozenset({0, 1}), frozenset({2, 3})]
    assert [planned.value(index, "--num-threads") for index in (0, 1)] == ["2", "2"]
    assert [planned.value(index, "--metrics-port") for index in (0, 1)] == ["9100", "9101"]
    sockets = [planned.value(index, "--host") for index in (0, 1)]
    assert planned.gateway.models[0].tulips == tuple(sockets)
    assert len(set(sockets)) == 2
    assert {command.group for command in planned.tulips} == {"model"}


def test_threads_asked_for_are_kept_and_six_share_four_cores(plan: Plan) -> None:
    assert plan(MINILM, "--replicas", "2", "--num-threads", "3").value(1, "--num-threads") == "3"
    many = plan(MINILM, "--replicas", "6")
    assert [many.value(index, "--num-threads") for index in range(6)] == ["1"] * 6
    assert [command.cores for command in many.tulips] == [frozenset({core}) for core in (0, 1, 2, 3, 0, 1)]


def test_each_device_has_a_server_of_its_own(plan: Plan) -> None:
    planned = plan(MINILM, "--devices", "cuda:0,cuda:1", "--graph-memory-mb", "500")
    assert [planned.value(index, "--device") for index in (0, 1)] == ["cuda:0", "cuda:1"]
    assert [planned.value(index, "--graph-memory-mb") for index in (0, 1)] == ["500", "500"]
    assert [command.cores for command in planned.tulips] == [None, None]
    twice = plan(MINILM, "--devices", "cuda:0,cpu", "--replicas", "2")
    assert [twice.value(index, "--device") for index in range(4)] == ["cuda:0", "cuda:0", "cpu", "cpu"]
    assert [command.cores for command in twice.tulips] == [None, None, frozenset({0, 1}), frozenset({2, 3})]


def test_several_models_by_name(plan: Plan) -> None:
    planned = plan(f"a={MINILM}", MINILM, "--replicas", "2")
    assert [model.served_model_names for model in planned.gateway.models] == [("a",), ("model",)]
    assert planned.names() == [f"tulip {n} of 2 for {name}" for name in ("a", "model") for n in (1, 2)] + ["ivy"]
    assert [command.group for command in planned.tulips] == ["a", "a", "model", "model"]


def test_several_models_by_file(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(
        f"""
        workers = 3
        auto-truncate = true
        dtype = "bfloat16"

        [[models]]
        model = "{MINILM}"
        served-model-name = ["small", "s"]
        max-length = 64
        replicas = 2

        [[models]]
        model = "large={MINILM}"
        device = "cuda:1"
        dtype = "float16"
        auto-truncate = false
        matryoshka = "any"
        dimensions = 128
        """
    )
    planned = plan("--config", str(tmp_path / "serve.toml"))
    assert planned.gateway.workers == 3
    small, large = planned.gateway.models
    assert (small.served_model_names, small.auto_truncate, small.dimensions) == (("small", "s"), True, None)
    assert (large.served_model_names, large.auto_truncate, large.dimensions) == (("large",), False, 128)
    assert planned.names() == ["tulip 1 of 2 for small", "tulip 2 of 2 for small", "tulip for large", "ivy"]
    assert [planned.value(index, "--dtype") for index in range(3)] == ["bfloat16", "bfloat16", "float16"]
    assert [planned.value(index, "--max-length") for index in range(3)] == ["64", "64", None]
    assert planned.value(2, "--device") == "cuda:1"


def test_the_gateway_reads_from_its_file_what_it_was_meant_to(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[IvyConfig] = []
    monkeypatch.setattr("rosebed.ivy.server.serve", given.append)
    planned = plan(
        f"a={MINILM}", f'odd " name={MINILM}', "--max-inputs", "7", "--default-prompt", "q: ", "--dimensions", "384"
    )
    folder = Path(planned.commands[-1].arguments[-1]).parent
    folder.mkdir()
    try:
        (folder / "ivy.toml").write_text(planned.gateway_file)
        result = CliRunner().invoke(app, list(planned.commands[-1].arguments[3:]))
        assert result.exception is None, result.output
    finally:
        (folder / "ivy.toml").unlink()
        folder.rmdir()
    assert given == [planned.gateway]


def test_an_environment_of_tei_is_enough(plan: Plan) -> None:
    environment = {
        "MODEL_ID": MINILM,
        "MAX_CLIENT_BATCH_SIZE": "32",
        "MAX_BATCH_TOKENS": "4096",
        "PAYLOAD_LIMIT": "1000",
        "POOLING": "cls",
        "DTYPE": "float32",
        "AUTO_TRUNCATE": "true",
        "SERVED_MODEL_NAME": "theirs, and ours",
        "API_KEY": "secret",
        "ROSEBED_SERVE_MAX_INPUTS": "64",
    }
    planned = plan(environment=environment)
    gateway = planned.gateway
    assert (gateway.max_inputs, gateway.max_body_bytes, gateway.api_key) == (64, 1000, "secret")
    assert gateway.models[0].served_model_names == ("theirs, and ours",)
    assert gateway.models[0].auto_truncate
    told = [planned.value(0, flag) for flag in ("--pooling", "--dtype", "--token-budget")]
    assert told == ["cls", "float32", "4096"]
    assert plan(f"other={MINILM}", environment={"MODEL_ID": "x"}).gateway.models[0].served_model_names == ("other",)


def test_an_inference_server_alone_takes_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("rosebed.wiring.run_tulip", lambda *given: told.append(given))  # pyright: ignore[reportUnknownLambdaType]
    (tmp_path / "tulip.toml").write_text(
        f'model = "{MINILM}"\nhost = "unix:/nowhere"\ndtype = "float32"\nmax-length = 9'
    )
    result = CliRunner(env={"ROSEBED_TULIP_DTYPE": "bfloat16"}).invoke(
        app, ["tulip", "--config", f"{tmp_path}/tulip.toml"]
    )
    assert result.exception is None, result.output
    ((spec, engine, tulip),) = told
    assert (spec.max_length, engine.dtype, tulip.host) == (9, "bfloat16", "unix:/nowhere")


def models_file(folder: Path) -> str:
    (folder / "models.toml").write_text("[[models]]\nmax-length = 9")
    return str(folder / "models.toml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([MINILM, "--replicas", "0"], "--replicas should lie in"),
        ([MINILM, "--device", "cuda:0", "--devices", "cuda:1"], "--device and --devices: say one of them"),
        ([MINILM, "--devices", "cuda:1,cuda:1"], "--devices names one twice"),
        ([MINILM, "--devices", "cuda:1,tpu"], "--devices should be auto, cpu, cuda or cuda:N, not 'tpu'"),
        (
            [MINILM, f"{MINILM}/."],
            f"MODEL {MINILM} and MODEL {MINILM}/. are both called 'model': NAME=MODEL tells them apart",
        ),
        ([f"a={MINILM}", f"b={MINILM}", "--served-model-name", "c"], "--served-model-name is of one model"),
        ([MINILM, "--dimensions", "7"], "--dimensions: dimensions is 7, but this model was not trained"),
        ([MINILM, "--default-prompt-name", "x"], "--default-prompt-name x is unknown"),
        ([MINILM, "--config", "FILE"], "and [[models]] in the config file: say one of them"),
        (["--config", "FILE"], "models.toml: models[0]: model should say which one it is"),
        (["=x"], "MODEL should be a folder, a hub id, or NAME=MODEL, not '=x'"),
        (["/no/such", "--workers", "0"], "--workers"),  # before the model is looked for
    ],
)
def test_what_cannot_be_is_refused(plan: Plan, tmp_path: Path, arguments: list[str], says: str) -> None:
    given: list[Any] = [models_file(tmp_path) if argument == "FILE" else argument for argument in arguments]
    with pytest.raises(ConfigError) as refused:
        plan(*given)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("replicas = 0", "replicas should lie in [1, 1024], not be 0"),
        ("dimensions = 5000", "dimensions: dimensions should lie in [1, 384], not be 5000"),
        ('devices = ["cpu", "tpu"]', "devices should be auto, cpu, cuda or cuda:N, not 'tpu'"),
        ('served-model-name = [""]', "served-model-name should not be empty"),
        ("token_budget = 0", "token_budget should be at least 1, not 0"),
        ("default-prompt-name = 'x'", "default-prompt-name x is unknown"),
        ("int8-ranges = '/no/such'", "int8-ranges /no/such: No such file"),
    ],
)
def test_a_bad_value_in_a_table_is_said_of_its_file_and_key(
    plan: Plan, tmp_path: Path, options: str, says: str
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(f"[[models]]\nmodel = 'a={MINILM}'\n[[models]]\nmodel = '{MINILM}'\n{options}")
    with pytest.raises(ConfigError) as refused:
        plan("--config", str(file))
    assert refused.value.message.startswith(f"{file}: models[1].{says}")


def test_a_flag_s_bad_value_is_not_said_of_the_table_that_it_overrides(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(f"[[models]]\nmodel = '{MINILM}'\nreplicas = 2")
    with pytest.raises(ConfigError) as refused:
        plan("--config", str(file), "--replicas", "0")
    assert refused.value.message == f"{file}: models[0]: --replicas should lie in [1, 1024], not be 0"


@pytest.mark.parametrize("command", ["serve", "ivy"])
def test_tables_of_one_name_are_both_named(tmp_path: Path, command: str) -> None:
    file = tmp_path / "models.toml"
    of_command = {"serve": f"model = '{MINILM}'", "ivy": "tulip = '127.0.0.1:1'"}[command]
    names = ["a", "b", "a"]
    file.write_text("\n".join(f"[[models]]\n{of_command}\nserved-model-name = '{name}'" for name in names))
    result = CliRunner().invoke(app, [command, "--config", str(file), "--port", "0"])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.message == (
        f"{file}: models[0] and {file}: models[2] are both called 'a': served-model-name tells them apart"
    )


def test_a_bad_value_in_a_gateway_s_table_is_said_of_its_key(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[[models]]\ntulip = ['127.0.0.1:1', 'nowhere']")
    result = CliRunner().invoke(app, ["ivy", "--config", str(file)])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.message == f"{file}: models[0].tulip should be HOST:PORT or unix:PATH, not 'nowhere'"


def test_a_folders_own_name_may_hold_the_sign(tmp_path: Path) -> None:
    folder = tmp_path / "a=b"
    folder.mkdir()
    assert named_source(str(folder)) == ("", str(folder))
    assert named_source("c=BAAI/bge-m3") == ("c", "BAAI/bge-m3")
    assert named_source("BAAI/bge-m3") == ("", "BAAI/bge-m3")
