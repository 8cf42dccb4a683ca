"""A manifest becomes engines as its workers would have them; what a simulation lacks is named by field with the fix."""

from dataclasses import replace
from typing import Any

import pytest

from paceline_core.errors import InvalidInput
from paceline_core.objects import InferenceService, ResolvedService
from paceline_core.objects.defaults import resolve
from paceline_planner.accelerators import CATALOGUE, H100
from paceline_planner.memory import kv_tokens
from paceline_planner.shapes import LLAMA_3_1_8B
from paceline_planner.step_clock import RooflineClock
from paceline_planner.steptime import Caps, StepWork
from paceline_simulator.service_engine import simulated_pools

EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "60s"}


def service(accelerator: str = "cpu", **engine: Any) -> ResolvedService:
    document = {
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {
            "model": {"source": "builtin://demo"},
            "engine": engine,
            "pools": [{"name": "main", "accelerator": accelerator}],
        },
    }
    return resolve(InferenceService.model_validate(document))


def test_an_emulated_pool_has_the_limits_pages_and_price_of_an_emulated_worker() -> None:
    made = simulated_pools(service(emulate=EMULATE, maxModelLen=16384, maxSeqs=32, kvCache={"pageTokens": 16}))
    (pool,) = made.pools
    limits = pool.engine.limits
    assert (limits.max_model_len, limits.max_seqs, limits.page_tokens) == (16384, 32, 16)
    assert pool.engine.pages == kv_tokens(LLAMA_3_1_8B, H100, caps=Caps(2048, 32)) // 16
    assert pool.engine.clock == RooflineClock(LLAMA_3_1_8B, H100)
    assert made.prices == {"main": pytest.approx(3.93)}
    assert pool.gpus == 1
    assert pool.start.mean_s == pytest.approx(60.0)


def test_a_pool_of_gpus_computes_the_model_of_the_manifest() -> None:
    (pool,) = simulated_pools(service("h100", maxModelLen=512)).pools
    work = StepWork(sequences=4, kv_tokens=4000)
    assert 0 < pool.engine.clock.seconds(work) < RooflineClock(LLAMA_3_1_8B, H100).seconds(work)
    assert pool.start.mean_s > 20.0


def test_a_lead_replaces_the_start_and_an_emulated_service_knows_it() -> None:
    made = simulated_pools(service(emulate=EMULATE), lead_s=180.0)
    assert made.pools[0].start.mean_s == pytest.approx(180.0)
    assert made.service.engine.emulation is not None
    assert made.service.engine.emulation.cold_start_s == 180.0


LACKING: tuple[tuple[ResolvedService, str], ...] = (
    (
        service("cpu"),
        r"spec\.pools\[0\]\.accelerator: workers on cpu measure .* emulate one with spec\.engine\.emulate",
    ),
    (service("b300"), r"spec\.pools\[0\]\.accelerator: 'b300' is not known; write a100, .* AcceleratorProfile"),
    (
        service(emulate=EMULATE, kvCache={"hostOffloadBytes": "8Gi"}),
        r"spec\.engine\.kvCache\.hostOffloadBytes: .*leave",
    ),
    (service(emulate=EMULATE, kvCache={"attentionWindow": 512}), r"spec\.engine\.kvCache\.attentionWindow: .*leave"),
    (service(emulate=EMULATE, maxModelLen=200_000), r"spec\.engine\.(maxModelLen|emulate): .*(lower it|fewer bytes)"),
)


@pytest.mark.parametrize(("lacking", "message"), LACKING)
def test_what_a_simulation_lacks_is_named_by_field_with_the_fix(lacking: ResolvedService, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulated_pools(lacking)


def test_a_model_without_its_files_is_named() -> None:
    there = service("h100")
    gone = replace(there, model=replace(there.model, source="file:///nowhere/model"))
    with pytest.raises(InvalidInput, match=r"spec\.model\.source: .*config\.json.*emulate one"):
        simulated_pools(gone, CATALOGUE.get)
