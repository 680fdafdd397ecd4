"""From a model folder to a CUDA engine: what is refused before anything is read, and which kernels are chosen."""

import logging
from importlib.metadata import version
from pathlib import Path

import torch

from rosebed.core.model_spec import ModelSpec
from rosebed.core.version import __version__
from rosebed.rose.config import EngineConfig
from rosebed.rose.cuda import float8
from rosebed.rose.cuda.attention_choice import attention_rows
from rosebed.rose.cuda.engine import MAX_GRAPH_TOKENS, CudaEngine
from rosebed.rose.cuda.history import History, HistoryKey, user_folder
from rosebed.rose.cuda.linear_table import load_table
from rosebed.rose.cuda.memory import plan_memory
from rosebed.rose.cuda.ops import CudaOps
from rosebed.rose.cuda.tables import TableKey, find_table
from rosebed.rose.loader import count_parameters, load_model

_logger = logging.getLogger(__name__)

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float8": torch.bfloat16}
"""Of everything but the weights of products, which float8 alone rounds further."""
_DRIVER = Path("/sys/module/nvidia/version")


def load_cuda_engine(spec: ModelSpec, config: EngineConfig) -> CudaEngine:
    """Load `spec` on the GPU that the resolved `config` names."""
    device = torch.device(config.device if ":" in config.device else f"{config.device}:0")
    torch.cuda.set_device(device)
    capability = torch.cuda.get_device_capability(device)
    is_float8 = config.dtype == "float8"
    if is_float8:
        float8.check_capability(capability, str(device))
    table = find_table(table_key(device), config.tune_table)
    dtype = _DTYPES[config.dtype]
    _check_memory(spec, device, dtype, is_float8=is_float8, bulk_slot=config.bulk_slot)
    ops = (float8.Float8Ops if is_float8 else CudaOps)(load_table(table, float8=is_float8), pdl=capability[0] >= 9)
    loaded = load_model(spec, ops, device=device, dtype=dtype)
    if is_float8:
        float8.pack(loaded.model)
        torch.cuda.empty_cache()  # graphs cannot use what the bfloat16 weights leave behind
    history = History(_history_key(spec, config, device), user_folder()) if config.refine_graphs else None
    return CudaEngine(loaded, config, attention_rows(table), history)


def _history_key(spec: ModelSpec, config: EngineConfig, device: torch.device) -> HistoryKey:
    return HistoryKey(
        chip=torch.cuda.get_device_name(device),
        fingerprint=spec.fingerprint,
        dtype=config.dtype,
        rosebed=__version__,
        torch=torch.__version__,
        triton=version("triton"),
    )


def table_key(device: torch.device) -> TableKey:
    """What tables of measured choices must have been measured with to hold here."""
    return TableKey(
        chip=torch.cuda.get_device_name(device),
        driver=_DRIVER.read_text().strip() if _DRIVER.is_file() else "unknown",
        torch=torch.__version__,
        triton=version("triton"),
    )


def _check_memory(
    spec: ModelSpec, device: torch.device, dtype: torch.dtype, *, is_float8: bool, bulk_slot: bool
) -> None:
    plan = plan_memory(
        spec,
        num_parameters=count_parameters(spec),
        item_bytes=dtype.itemsize,
        max_graph_tokens=MAX_GRAPH_TOKENS,
        is_float8=is_float8,
        bulk_slot=bulk_slot,
    )
    plan.check(torch.cuda.mem_get_info(device)[0], str(device))
    _logger.info("memory plan: %s", plan)
