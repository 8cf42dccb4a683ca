"""From a folder to a backend on a GPU, with the CPU in its place: stages, sizes, the tokens of the CPU's backend."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.gpu_references import REFERENCES
from tests.engine.gpu_site import Told, site
from tests.engine.manual import ManualTimer

from paceline_core.errors import InvalidInput
from paceline_planner import accelerators, hardware, steptime
from paceline_planner.hardware import Dtype
from paceline_planner.steptime import Caps
from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.gpu.backend import UNKNOWN, GpuContext, TritonBackend
from paceline_workers.engine.backends.gpu.decoder import Kernels
from paceline_workers.engine.backends.gpu.memory_profile import FreeMemory
from paceline_workers.engine.devices import Gpu, found
from paceline_workers.engine.model import config
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.models

MIB = 1 << 20
ROOMY = site(FreeMemory(8 * MIB, 8 * MIB), kernels=REFERENCES)
PAGE = 16 * 2 * 2 * 2 * 16 * 4
"""Bytes: tokens, keys and values, layers, heads, numbers in a head, float32."""
GPU = found()
PLACES = {"host": ROOMY} | ({} if GPU is None else {"cuda": GpuContext.open(GPU)})
SMALL: dict[str, Any] = {"dtype": "fp32", "page_tokens": 16, "max_seqs": 4, "step_tokens": 64, "batch_window_s": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("llama"), "llama").folder


def opened(folder: Path, where: GpuContext = ROOMY, **engine: Any) -> TritonBackend:
    timer = ManualTimer()
    settings = EngineConfig.model_validate(SMALL | engine)
    return TritonBackend.load(settings, f"file://{folder}", timer, timer.pause, where)


def refusal(folder: Path, where: GpuContext = ROOMY, **engine: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        opened(folder, where, **engine)
    return str(refused.value)


def told(where: GpuContext) -> Told:
    assert isinstance(where.memory, Told)
    return where.memory


@pytest.mark.parametrize("place", PLACES)
def test_greedy_tokens_are_those_of_the_cpu_backend(folder: Path, place: str) -> None:
    """Prompts over several chunks and pages, more requests than seats, planned ahead."""
    chance = random.Random(5)
    prompts = [[chance.randrange(reference.VOCAB) for _ in range(size)] for size in (1, 15, 70, 33, 7)]
    texts = []
    for backend in (load(folder, products="plain"), opened(folder, PLACES[place], kv_pages=60)):
        driver = Driver(backend, ahead=backend.facts.ahead)
        for number, prompt in enumerate(prompts):
            driver.submit(f"r{number}", prompt, 6)
        driver.drain()
        texts.append([driver.text(f"r{number}") for number in range(len(prompts))])
    assert texts[0] == texts[1]
    assert all(texts[1])


def test_pages_get_what_a_full_step_leaves_and_the_step_is_really_run(folder: Path) -> None:
    """By hand: of 100 MiB 95 may be used, 20 are, and a step takes 11, of which one page is the trial's own."""
    where = site(FreeMemory(100 * MIB, 80 * MIB), 11 * MIB, kernels=REFERENCES)
    facts = opened(folder, where, max_seqs=8).facts
    assert facts.page_bytes == PAGE
    assert facts.pages == (95 * MIB - 20 * MIB - (11 * MIB - PAGE)) // PAGE
    assert len(told(where).tried) == 1


@pytest.mark.parametrize("place", PLACES)
def test_an_engine_takes_most_of_what_is_free_and_still_steps(folder: Path, place: str) -> None:
    free = PLACES[place].memory.left().free
    backend = opened(folder, PLACES[place])
    assert free / 2 < backend.facts.pages * backend.facts.page_bytes < free
    driver = Driver(backend, ahead=True)
    driver.submit("a", [7] * 64, 3)
    driver.drain()
    assert len(driver.text("a")) == 3


@pytest.mark.parametrize(("given", "pages"), [({"kv_pages": 7}, 7), ({"kv_bytes": 9 * PAGE + 1}, 9)])
def test_pages_that_are_configured_are_not_measured(folder: Path, given: dict[str, int], pages: int) -> None:
    where = site(FreeMemory(MIB, 0), kernels=REFERENCES)
    assert opened(folder, where, **given).facts.pages == pages
    assert told(where).tried == []


def test_a_gpu_that_is_full_is_told_with_what_is_left(folder: Path) -> None:
    where = site(FreeMemory(100 * MIB, 20 * MIB), 30 * MIB, kernels=REFERENCES)
    assert refusal(folder, where).startswith("model: its weights and a full step leave 0 MiB for pages on NVIDIA H100")


def test_memory_that_a_kernel_cannot_have_is_told_with_what_to_make_smaller(folder: Path) -> None:
    def lacking(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1 GiB")

    where = replace(ROOMY, kernels=Kernels(add_rmsnorm=lacking))  # type: ignore[arg-type]
    said = refusal(folder, where, kv_pages=9)
    assert said == "engine.kv_pages: does not fit into the GPU's memory (Tried to allocate 2.00 GiB); make it smaller"


def test_narrow_pages_hold_scales_and_bf16_is_what_is_used_unasked(folder: Path) -> None:
    with_scales = opened(folder, kv_pages=9, kv_dtype="int8")
    assert with_scales.facts.page_bytes == PAGE // 4 + PAGE // 16
    where = replace(ROOMY, kernels=REFERENCES)
    assert opened(folder, where, kv_pages=9, dtype="auto").facts.page_bytes == PAGE // 2


def test_what_kernels_do_not_take_is_refused_before_weights_are_read(folder: Path) -> None:
    assert refusal(folder, page_tokens=8).startswith("engine.page_tokens: 8 is no size of page on GPUs")
    assert refusal(folder, batch_invariant=True).startswith("engine.batch_invariant: is for CPUs in this version")


class Looks:
    """Counts looks at the API process, which is gone at the last one."""

    def __init__(self, last: int = 0) -> None:
        self.count = 0
        self.last = last

    def __call__(self, seconds: float) -> None:
        assert seconds == 0.0
        self.count += 1
        if self.count == self.last:
            raise EOFError


def test_stages_are_told_and_a_load_can_be_given_up_in_each_that_lasts(folder: Path) -> None:
    def loaded(looks: Looks) -> list[str]:
        backend = TritonBackend.load(EngineConfig(**SMALL), f"file://{folder}", ManualTimer(), looks, ROOMY)
        return list(backend.facts.stages)

    whole = Looks()
    assert loaded(whole) == ["config", "load", "warm"]
    layers, trial = 2, 1
    assert whole.count > layers + trial + 1
    for last in (layers, layers + trial, whole.count):
        with pytest.raises(EOFError):
            loaded(Looks(last))


@pytest.mark.parametrize(("name", "like"), [("NVIDIA H200", accelerators.H200), ("NVIDIA RTX 9090", UNKNOWN)])
def test_steps_begin_with_the_planners_time_for_the_gpu_or_for_a_slow_one(
    folder: Path, name: str, like: hardware.Accelerator
) -> None:
    backend = opened(folder, replace(ROOMY, gpu=Gpu(name, (9, 0))), kv_pages=9)
    shape = replace(config.read(folder).shape, weight_dtype=Dtype.FP32, kv_dtype=Dtype.FP32)
    assert backend.facts.prior == steptime.prior(shape, like, caps=Caps(64, 4))
    assert accelerators.H200 != UNKNOWN


def test_pages_in_host_memory_are_timed_and_reach_the_runner(folder: Path) -> None:
    backend = opened(folder, kv_pages=7, host_bytes=64 * PAGE)
    assert backend.facts.host_pages == 64
    driver = Driver(backend, pages=7, ahead=True)
    prompts = [[(place * 7 + salt) % 200 for place in range(70)] for salt in range(3)]
    for turn in range(2):
        for salt, prompt in enumerate(prompts):
            driver.submit(f"{turn}{salt}", prompt, 3, Sampling(temperature=0.0))
            driver.drain()
    assert [driver.text(f"0{salt}") for salt in range(3)] == [driver.text(f"1{salt}") for salt in range(3)]
    assert driver.core.memory.offload.pages_in > 0
