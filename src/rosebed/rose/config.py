"""Settings of the engine, and what their `auto` means on a machine. Imports no torch, so that `--help` is quick."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from rosebed.core.errors import ConfigError

DtypeName = Literal["auto", "float32", "bfloat16", "float16", "float8", "int8"]
CpuBackend = Literal["auto", "torch", "openvino"]
GraphPolicy = Literal["full", "lazy", "off"]
ATTENTION_BACKENDS = ("sdpa", "triton", "torch-varlen", "flashinfer-fa2", "flashinfer-fa3", "fa3", "fa4")
"""The first runs on the CPU, the others on GPUs."""

SERVERS_ONLY = ("bulk_slot", "refine_graphs")
"""Settings that engines without a server before them have no use for."""

MAX_TOKEN_BUDGET = 1 << 24
"""More is a slip of the hand: no device holds the hidden states of so many."""
MAX_THREADS = 4096
MAX_GRAPH_MEMORY_MB = 1 << 20

_OVERFLOWS_FLOAT16 = frozenset({"qwen3", "bidirectional_pplx_qwen3"})
"""Model types whose hidden states leave float16's range and become NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How a model is computed. None of it changes what a vector means."""

    device: str = "auto"
    """cpu, cuda, or cuda:N; auto takes the first GPU, else the CPU."""
    dtype: DtypeName = "auto"
    """Type of weights and hidden states; auto is bfloat16 on a GPU, and on a CPU float32, but for models that
    `rosebed verify --dtype bfloat16` has passed on a CPU with AMX. float8 is of products alone, on a GPU that has it,
    and bfloat16 of the rest; int8 is of products alone, on a CPU, and float32 of the rest. Both cost accuracy, which
    `rosebed verify` shows."""
    attention: str = "auto"
    """Name of the attention backend: sdpa on the CPU; triton, torch-varlen, flashinfer-fa2, flashinfer-fa3, fa3 or fa4
    on a GPU. auto takes what was measured to be fastest."""
    token_budget: int | None = None
    """Tokens that one batch holds, on a GPU up to a third more if that spares a batch; none takes what suits the
    device."""
    graphs: GraphPolicy = "full"
    """When CUDA graphs are captured: full, all before the server is ready; lazy, each at its second use; off, never."""
    graph_memory_mb: int | None = None
    """Memory of CUDA graphs beyond which no more are captured: batches then run in the next larger one; none sets no
    bound."""
    tune_table: str | None = None
    """File of measured kernel choices that `rosebed tune` has written; none takes the one it wrote by default for this
    GPU and these libraries, else the one that ships."""
    bulk_slot: bool = True
    """Gives bulk work a stream and graphs of its own on a GPU, so that online work does not wait for its steps; takes
    memory for one more step. Without, both share one."""
    refine_graphs: bool = True
    """With graphs in full: counts the sizes of steps, keeps the counts in the user's cache folder, and captures graphs
    for frequent sizes while the server is idle."""
    cpu_backend: CpuBackend = "auto"
    """What computes on a CPU: torch, or openvino, which answers short texts in less than half of the time; auto takes
    openvino where it is installed and computes in this dtype, else torch."""
    num_threads: int | None = None
    """CPU threads that one step uses; none takes as many as torch would, one per core."""


def resolve_config(
    config: EngineConfig, model_type: str, *, has_cuda: bool, cpu_dtype: Callable[[], DtypeName] = lambda: "float32"
) -> EngineConfig:
    """`config` with device and dtype decided. ConfigError for a value that is wrong here, naming its flag.

    `cpu_dtype` is asked what `auto` means on the CPU.
    """
    check_config(config)
    device = ("cuda" if has_cuda else "cpu") if config.device == "auto" else config.device
    kind = device.partition(":")[0]
    if kind == "cuda" and not has_cuda:
        raise ConfigError(f"--device {config.device}: torch sees no CUDA device here")
    dtype: DtypeName = config.dtype
    if dtype == "auto":
        dtype = cpu_dtype() if kind == "cpu" else "bfloat16"
    if dtype == "float16" and (kind == "cpu" or model_type in _OVERFLOWS_FLOAT16):
        where = "the CPU" if kind == "cpu" else f"{model_type}, which overflows it"
        raise ConfigError(f"--dtype float16 is not served on {where}: take bfloat16 or float32")
    if dtype == "float8" and kind == "cpu":
        raise ConfigError("--dtype float8 is not served on the CPU: take bfloat16 or float32")
    if dtype == "int8" and kind == "cuda":
        raise ConfigError("--dtype int8 is not served on a GPU: take float8 or bfloat16")
    return replace(config, device=device, dtype=dtype)


def in_process(config: EngineConfig) -> EngineConfig:
    """`config` for an engine whose caller drives it by itself."""
    return replace(config, bulk_slot=False, refine_graphs=False)


def check_config(config: EngineConfig) -> None:
    """ConfigError for a value that is wrong on every machine, naming its flag."""
    _check_type("--device", config.device, str)
    _check_choice("--attention", config.attention, ("auto", *ATTENTION_BACKENDS))
    if config.tune_table is not None:
        _check_type("--tune-table", config.tune_table, str)
    _check_choice("--dtype", config.dtype, get_args(DtypeName))
    _check_choice("--cpu-backend", config.cpu_backend, get_args(CpuBackend))
    if config.cpu_backend == "openvino" and (config.dtype == "int8" or config.attention == "sdpa"):
        which = "--dtype int8" if config.dtype == "int8" else "--attention sdpa"
        raise ConfigError(f"{which} is not served by --cpu-backend openvino: take torch or auto")
    _check_choice("--graphs", config.graphs, get_args(GraphPolicy))
    _check_flag("--bulk-slot", config.bulk_slot)
    _check_flag("--refine-graphs", config.refine_graphs)
    kind, colon, index = config.device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and (kind != "cuda" or not index.isdecimal())):
        raise ConfigError(f"--device should be auto, cpu, cuda or cuda:N, not {config.device!r}")
    _check_count("--token-budget", config.token_budget, MAX_TOKEN_BUDGET)
    _check_count("--num-threads", config.num_threads, MAX_THREADS)
    _check_count("--graph-memory-mb", config.graph_memory_mb, MAX_GRAPH_MEMORY_MB)


# Configs made in Python, unlike those of the command line, hold whatever they were given.
def _check_type(flag: str, value: object, expected: type[Any]) -> None:
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ConfigError(f"{flag} should be {expected.__name__}, not {value!r}")


def _check_flag(flag: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{flag} should be true or false, not {value!r}")


def _check_choice(flag: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{flag} should be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")


def _check_count(flag: str, value: int | None, most: int) -> None:
    if value is None:
        return
    _check_type(flag, value, int)
    if value < 1:
        raise ConfigError(f"{flag} should be at least 1, not {value}")
    if value > most:
        raise ConfigError(f"{flag} should be at most {most}, not {value}")
