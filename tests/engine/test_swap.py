"""Pages that leave the device and come back, or are copied for a fork, change no token; the costs that decide it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.reference_scheduler import request

from paceline_core.errors import InvalidInput
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.messages import Sampling

PROMPTS = {f"r{length}": [(place * 7 + length) % reference.VOCAB for place in range(length)] for length in (30, 47, 5)}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> CpuBackend:
    folder: Path = tmp_path_factory.mktemp("swap")
    reference.write(folder, "llama")
    return load(folder, host_bytes=1 << 20)


def texts(run: Driver, sampling: Sampling | None = None) -> dict[str, list[int]]:
    for name, prompt in PROMPTS.items():
        run.submit(name, prompt, 60, sampling)
    run.drain()
    return {name: run.text(name) for name in PROMPTS}


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(temperature=0.9, seed=5)])
def test_preemption_by_swap_changes_no_token(backend: CpuBackend, sampling: Sampling) -> None:
    roomy, tight = Driver(backend), Driver(backend, pages=9, max_model_len=140)
    assert texts(tight, sampling) == texts(roomy, sampling)
    assert tight.core.counters.preemptions > 0
    assert tight.core.memory.offload.restored_tokens > 0
    assert tight.core.memory.offload.pages_out >= tight.core.memory.offload.pages_in > 0


def test_swap_computes_less_again_than_recompute_does(backend: CpuBackend) -> None:
    swap, recompute = (Driver(backend, pages=9, max_model_len=140) for _ in range(2))
    recompute.core.memory.offload.prefill_seconds = 0.0
    assert texts(swap) == texts(recompute)
    assert recompute.core.memory.offload.pages_out == 0
    assert swap.core.counters.recomputed_tokens < recompute.core.counters.recomputed_tokens


def test_a_prefix_that_was_evicted_is_hit_in_host_memory(backend: CpuBackend) -> None:
    prompt = PROMPTS["r47"]
    run = Driver(backend, pages=6, max_model_len=90)
    run.submit("first", prompt, 12)
    run.drain()
    run.submit("other", [5] * 80, 8)
    run.drain()
    run.submit("again", prompt, 12)
    run.drain()
    assert run.text("again") == run.text("first")
    assert run.core.memory.offload.restored_tokens >= 16


def test_the_warm_up_measures_what_a_page_costs_to_bring_back(backend: CpuBackend) -> None:
    assert backend.facts.host_pages == (1 << 20) // backend.facts.page_bytes
    assert backend.facts.page_copy_s >= 0.0


def test_choices_of_one_prompt_draw_what_they_draw_without_sharing(backend: CpuBackend) -> None:
    prompt, sampling = PROMPTS["r30"], Sampling(temperature=1.0, seed=3)
    apart, run = Driver(backend, cache=False), Driver(backend, cache=False)
    for number in range(4):
        apart.submit(f"n{number}", prompt, 20, sampling).choice = number
    apart.drain()
    for number in range(4):
        entry = replace(request(f"n{number}", prompt, 20), sampling=sampling, choice=number, group="n")
        assert run.core.submit(entry) is None
    run.drain()
    assert [run.text(f"n{number}") for number in range(4)] == [apart.text(f"n{number}") for number in range(4)]
    assert run.core.memory.pool.held == 0


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"host_bytes": 100}, "engine.host_bytes: 100 bytes do not hold one page of 4096"),
        ({"host_bytes": 1 << 20, "prefix_cache": False}, "engine.host_bytes: .* prefix cache"),
    ],
)
def test_host_memory_that_cannot_serve_is_refused(engine: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sizing.host_pages(EngineConfig.model_validate(engine), 4096)


def test_host_memory_is_off_unless_it_is_asked_for() -> None:
    assert sizing.host_pages(EngineConfig(), 4096) == 0
    assert sizing.host_pages(EngineConfig(host_bytes=9000), 4096) == 2
