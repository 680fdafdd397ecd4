"""CUDA's attention backends without a GPU: which are made, what they are called with, and why one cannot be had."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rosebed.core.errors import ConfigError, StepFailed
from rosebed.core.types import Batch, Sequence, SequenceLayout, whole_span
from rosebed.rose.attention.base import AttentionSpec
from rosebed.rose.attention.registry import BACKENDS as CPU_BACKENDS
from rosebed.rose.config import ATTENTION_BACKENDS
from rosebed.rose.cuda import attention as attention_module
from rosebed.rose.cuda import flashinfer, varlen
from rosebed.rose.cuda.attention import BACKENDS, AttentionRows, create_attention, create_attentions
from rosebed.rose.cuda.attention_choice import AttentionShape, MeasuredAttention
from rosebed.rose.cuda.keys import GraphKey

CPU = torch.device("cpu")
BF16 = torch.bfloat16
FULL = AttentionSpec(num_heads=16, num_kv_heads=8, head_dim=128)
CAUSAL = AttentionSpec(num_heads=16, num_kv_heads=8, head_dim=128, causal=True)
LIBRARIES = [name for name in BACKENDS if name != "triton"]
MODULES = {"flashinfer-fa2": "flashinfer", "flashinfer-fa3": "flashinfer", "fa3": "fa3_fwd_interface"}
PACKAGES = {"flashinfer-fa2": "flashinfer-python", "flashinfer-fa3": "flashinfer-python", "fa3": "fa3-fwd"}


def layout_of(*lengths: int) -> SequenceLayout:
    return Batch.pack(Sequence(token_ids=np.zeros(n, np.int32), pool_spans=whole_span(n)) for n in lengths).layout


def always(answer: object) -> Callable[..., object]:
    def function(*args: object) -> object:
        return answer

    return function


@pytest.fixture(autouse=True)
def _hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", always((9, 0)))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", always(True))


class Calls:
    """Stands in for a library's function."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        self.args, self.kwargs = list(args), kwargs
        return torch.zeros_like(args[0]), None


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make modules of these names importable."""

    def create(**modules: dict[str, object]) -> None:
        made = {name.replace("__", "."): contents for name, contents in modules.items()}
        for name, contents in made.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(varlen, "find_spec", always(object()))

    return create


def attended(name: str, spec: AttentionSpec, num_tokens: int = 64) -> Tensor:
    backend = create_attention(name, spec, CPU, BF16)
    qkv = torch.zeros(num_tokens, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim, dtype=BF16)
    q, k, v = qkv.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    return backend.bind(torch.tensor([0, 10, 10], dtype=torch.int32), num_tokens).forward(q, k, v)


@pytest.mark.parametrize("name", [*MODULES, "fa4"])
def test_what_is_not_installed_is_named_with_its_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "find_spec", always(None))
    package = PACKAGES.get(name, "flash-attn-4")
    with pytest.raises(ConfigError, match=f"--attention {name} needs a package that .* pip install '{package}>="):
        create_attention(name, FULL, CPU, BF16)


def test_a_flash_attention_without_cute_is_not_fa4(install: Callable[..., None]) -> None:
    install(flash_attn={})
    with pytest.raises(ConfigError, match=r"needs flash_attn\.cute, which cannot be imported .* 'flash-attn-4>="):
        create_attention("fa4", FULL, CPU, BF16)


def test_a_torch_without_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", always(False))
    with pytest.raises(ConfigError, match=r"--attention torch-varlen: this build of torch, .*, has no FlashAttention"):
        create_attention("torch-varlen", FULL, CPU, BF16)


@pytest.mark.parametrize("name", LIBRARIES)
def test_wrong_chips_types_and_models_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]
) -> None:
    install()
    with pytest.raises(ConfigError, match=f"--attention {name} computes bfloat16 and float16, not float32"):
        create_attention(name, FULL, CPU, torch.float32)
    with pytest.raises(ConfigError, match=f"--attention {name} takes heads of 64 or 128, and this model's have 32"):
        create_attention(name, AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=32), CPU, BF16)
    with pytest.raises(ConfigError, match=f"--attention {name} knows no bias by distance"):
        create_attention(name, AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=64, relative_bias=True), CPU, BF16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", always((7, 5)))
    with pytest.raises(ConfigError, match=rf"--attention {name} runs on .*, and cpu has 7\.5"):
        create_attention(name, FULL, CPU, BF16)


@pytest.mark.parametrize("name", ["fa3", "flashinfer-fa2", "flashinfer-fa3"])
def test_windows_are_refused_where_unknown(name: str, install: Callable[..., None]) -> None:
    install()
    with pytest.raises(ConfigError, match=f"--attention {name} knows no sliding window"):
        create_attention(name, AttentionSpec(num_heads=4, num_kv_heads=4, head_dim=64, window=64), CPU, BF16)


def test_the_names_that_settings_take_are_those_there_are() -> None:
    assert list(ATTENTION_BACKENDS) == [*CPU_BACKENDS, *BACKENDS]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="--attention 'fa5' does not run on CUDA; auto, triton, torch-varlen, "):
        create_attention("fa5", FULL, CPU, BF16)


def test_fa3_gets_the_padding_as_a_sequence_and_the_bucket_as_longest(install: Callable[..., None]) -> None:
    calls = Calls()
    install(fa3_fwd_interface={"flash_attn_varlen_func": calls})
    assert attended("fa3", CAUSAL).shape == (64, 16, 128)
    assert calls.args[3].tolist() == calls.args[4].tolist() == [0, 10, 10, 64]
    assert calls.args[5:] == [64, 64]
    assert calls.kwargs == {"causal": True}


@pytest.mark.parametrize(
    ("causal", "window", "expected"),
    [(False, None, (None, None)), (True, None, (None, None)), (False, 8, (8, 8)), (True, 8, (8, 0))],
)
def test_fa4_gets_bounds_and_window(
    causal: bool, window: int | None, expected: tuple[int | None, int | None], install: Callable[..., None]
) -> None:
    calls = Calls()
    install(flash_attn={}, flash_attn__cute={"flash_attn_varlen_func": calls})
    attended("fa4", AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=64, causal=causal, window=window))
    assert calls.kwargs["cu_seqlens_q"].tolist() == calls.kwargs["cu_seqlens_k"].tolist() == [0, 10, 10, 64]
    assert calls.kwargs["max_seqlen_q"] == calls.kwargs["max_seqlen_k"] == 64
    assert calls.kwargs["causal"] == causal
    assert calls.kwargs["window_size"] == expected


@pytest.mark.parametrize("window", [None, 8])
def test_torch_takes_the_arguments(window: int | None) -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=64, causal=True, window=window)
    backend = create_attention("torch-varlen", spec, CPU, BF16)
    meta = torch.device("meta")
    q, k, v = torch.empty(64, 8, 64, dtype=BF16, device=meta).split((4, 2, 2), dim=1)
    bounds = torch.zeros(3, dtype=torch.int32, device=meta)
    assert backend.bind(bounds, 64).forward(q, k, v).shape == (64, 4, 64)


class FakeModule:
    """FlashInfer's compiled module: remembers plans, and says what `info` holds."""

    def __init__(self) -> None:
        self.plans: list[tuple[Any, ...]] = []
        self.info = [1, 2]

    def plan(self, *args: Any) -> list[int]:
        self.plans.append(args)
        return self.info


class FakeWrapper:
    """`BatchPrefillWithRaggedKVCacheWrapper`, as far as we use it."""

    module = FakeModule()

    def __init__(self, floats: Tensor, layout: str, **kwargs: Any) -> None:
        self.floats, self.kwargs = floats, kwargs
        self._qo_indptr_buf = kwargs["qo_indptr_buf"]
        self._cached_module = self.module

    def plan(self, *args: Any, **kwargs: Any) -> None:
        self._plan_info = self.module.info

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q


@pytest.fixture
def fake_flashinfer(monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]) -> FakeModule:
    install(flashinfer={"BatchPrefillWithRaggedKVCacheWrapper": FakeWrapper})
    monkeypatch.setattr(FakeWrapper, "module", FakeModule())
    monkeypatch.setattr(flashinfer, "FLOAT_WORKSPACE_BYTES", 1024)
    make = torch.empty

    def unpinned(*size: Any, pin_memory: bool = False, **kwargs: Any) -> Tensor:
        return make(*size, **kwargs)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(torch.cuda, "get_device_properties", always(SimpleNamespace(multi_processor_count=132)))
    return FakeWrapper.module


@pytest.mark.parametrize(("name", "num_arguments"), [("flashinfer-fa2", 20), ("flashinfer-fa3", 16)])
def test_flashinfer_plans_what_its_module_takes(name: str, num_arguments: int, fake_flashinfer: FakeModule) -> None:
    backend = create_attention(name, CAUSAL, CPU, BF16)
    key = GraphKey.holding(2048, name, 3)
    backend.plan(layout_of(700, 1, 300), key, 1)
    (arguments,) = fake_flashinfer.plans
    assert len(arguments) == num_arguments
    bounds = arguments[3].tolist()
    assert bounds[:5] == [0, 700, 701, 1001, 2048]
    assert len(bounds) == key.attended_sequences + 2
    assert arguments[6:8] == (2048, key.attended_sequences + 1)
    assert arguments[14:16] == (True, -1)


def test_flashinfer_does_not_replay_another_plan(fake_flashinfer: FakeModule) -> None:
    backend = create_attention("flashinfer-fa2", FULL, CPU, BF16)
    key = GraphKey.holding(2048, "flashinfer-fa2", 1)
    backend.plan(layout_of(700), key, 0)
    fake_flashinfer.info = [3, 4]
    backend.plan(layout_of(700), key, 0)  # the plan that it holds already
    for _ in range(2):  # a refused plan is not held
        with pytest.raises(StepFailed, match=r"FlashInfer planned \[3, 4\] for a graph that holds \[1, 2\]"):
            backend.plan(layout_of(701), key, 0)


def test_flashinfer_fa2_has_room_for_its_parts(fake_flashinfer: FakeModule) -> None:
    backend = create_attention("flashinfer-fa2", FULL, CPU, BF16)
    attention: Any = backend
    bucket = attention._bucket(8192, 128)
    tiles = 8192 * 2 // 128 + 128  # what its plan counts for 129 sequences
    assert len(bucket.floats) >= 4 * 16 * tiles * 128 * 129
    assert attention._bucket(64, 4).floats is bucket.floats


def rows_for(spec: AttentionSpec, **us: float) -> AttentionRows:
    shape = AttentionShape(spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.causal)
    times = {name.replace("_", "-"): value for name, value in us.items()}
    return {shape: (MeasuredAttention(9999, times, {}),)}


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], list[str]]:
    """(names that can be made, to be filled; names that were tried)."""
    names, tried = set[str](), list[str]()

    def create(name: str, *args: object) -> object:
        tried.append(name)
        if name not in names:
            raise ConfigError("not here")
        return object()

    monkeypatch.setattr(attention_module, "create_attention", create)
    return names, tried


def test_auto_makes_the_fastest_and_nothing_else(available: tuple[set[str], list[str]]) -> None:
    names, tried = available
    names.update(("triton", "fa3", "flashinfer-fa3"))
    rows = rows_for(FULL, triton=9.0, fa4=1.0, flashinfer_fa3=2.0, fa3=3.0, flashinfer_fa2=8.0)
    made = create_attentions("auto", FULL, CPU, BF16, rows)
    assert set(made.backends) == set(made.choice.names) == {"triton", "flashinfer-fa3"}
    assert "fa4" in tried  # faster, and not here
    assert not {"fa3", "flashinfer-fa2", "torch-varlen"} & set(tried)
    assert made.choose(layout_of(4000), idle=False) == "flashinfer-fa3"
    assert made.choose(layout_of(*[10] * 100), idle=False) == "triton"


def test_auto_takes_the_next_where_the_fastest_is_missing(available: tuple[set[str], list[str]]) -> None:
    available[0].update(("triton", "torch-varlen"))
    rows = rows_for(FULL, triton=9.0, fa4=1.0, flashinfer_fa3=2.0, torch_varlen=3.0)
    assert create_attentions("auto", FULL, CPU, BF16, rows).choice.names == ("triton", "torch-varlen")


def test_auto_without_times_goes_by_length(available: tuple[set[str], list[str]]) -> None:
    available[0].update(("triton", "torch-varlen", "fa3", "fa4"))
    made = create_attentions("auto", FULL, CPU, BF16, {})
    assert made.choice.names == ("triton", "fa3")
    assert made.choose(layout_of(1024), idle=False) == "fa3"


def test_auto_fails_where_there_is_none(available: tuple[set[str], list[str]]) -> None:
    with pytest.raises(ConfigError, match=r"--attention: none of triton, .* computes AttentionSpec"):
        create_attentions("auto", FULL, CPU, BF16, {})
