from decimal import Decimal
from typing import Any

import pytest
from tests.core.objects.corpus import valid
from tests.every import cases

from paceline_core.objects import (
    InferenceRoute,
    InferenceService,
    ResolvedService,
    ResolvedTenant,
    Target,
    Tenant,
    resolve,
    resolve_route,
    resolve_tenant,
    validate,
)
from paceline_core.registry.enums import RequestClass

INTERACTIVE, BATCH, OFFLINE = RequestClass


def resolved(name: str, **engine: Any) -> ResolvedService:
    document = valid()[name]
    service = validate({**document, "spec": {**document["spec"], "engine": engine}} if engine else document)
    assert isinstance(service, InferenceService)
    return resolve(service)


def tenant(**spec: Any) -> ResolvedTenant:
    found = validate({**valid()["tenant-minimal"], "spec": {"services": ["*"], **spec}})
    assert isinstance(found, Tenant)
    return resolve_tenant(found)


def test_the_least_manifest_resolves_to_one_cpu_replica_without_a_promise() -> None:
    service = resolved("minimal")
    (pool,) = service.pools
    assert (pool.min, pool.max, pool.gpus, pool.tensor, pool.role) == (1, 1, 0, 1, "both")
    assert service.targets == ()
    assert (service.model.served_name, service.key, service.emulated) == ("chat", "default/chat", False)
    assert service.scaling.policy == "slo"
    assert service.scaling.scale_to_zero_after_s is None


def test_engine_defaults_are_numbers_of_this_release() -> None:
    engine = resolved("minimal").engine
    assert (engine.max_model_len, engine.max_seqs, engine.step_tokens, engine.page_tokens) == (None, 64, 2048, 64)
    assert (engine.prefix_cache, engine.batching, engine.kv_dtype) == (True, "continuous", "auto")


@pytest.mark.parametrize(
    ("written", "max_seqs", "step_tokens"),
    [({"stepTokens": 20}, 20, 20), ({"maxSeqs": 4096}, 4096, 4096), ({"maxSeqs": 128}, 128, 2048)],
)
def test_a_default_never_leaves_a_running_request_without_its_token_in_a_step(
    written: dict[str, int], max_seqs: int, step_tokens: int
) -> None:
    engine = resolved("minimal", **written).engine
    assert (engine.max_seqs, engine.step_tokens) == (max_seqs, step_tokens)


@pytest.mark.parametrize(
    ("cls", "window_s", "queue", "hold_s", "tokens"),
    [(INTERACTIVE, 0.003, 256, 120, 4096), (BATCH, 0.020, 1024, 600, 8192), (OFFLINE, 0.040, 4096, 3600, 16384)],
)
def test_each_class_has_its_own_limits(
    cls: RequestClass, window_s: float, queue: int, hold_s: float, tokens: int
) -> None:
    found = resolved("minimal").classes[cls]
    assert (found.batch_window_s, found.queue_limit, found.hold_timeout_s) == (window_s, queue, hold_s)
    assert (found.max_tokens, found.availability, found.slo_window_s) == (tokens, 0.999, 28 * 86400)


def test_what_is_written_wins_even_when_it_is_zero() -> None:
    classes = resolved("promise").classes
    assert classes[BATCH].queue_limit == 0
    assert classes[OFFLINE].batch_window_s == 0
    assert classes[OFFLINE].slo_window_s == 86400


def test_every_quantile_is_a_target_of_its_own_in_seconds() -> None:
    service = resolved("promise")
    assert len(service.targets) == 3 * 3 * 4
    assert service.targets[2] == Target(INTERACTIVE, "ttft", 0.95, 0.5, 0.333e-3)
    assert service.targets[2].limit(3000) == pytest.approx(0.5 + 0.999)
    assert service.classes[INTERACTIVE].targets[-1] == Target(INTERACTIVE, "e2e", 0.99, 90.0)


def test_a_target_names_its_series_and_its_objective() -> None:
    names = {target.name: target.objective for target in resolved("promise").classes[BATCH].targets}
    assert names == {
        f"{metric}_{key}": quantile
        for metric in ("ttft", "tpot", "e2e")
        for key, quantile in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
    }


def test_a_pool_that_says_no_number_of_gpus_asks_for_one_unless_it_needs_none() -> None:
    assert [pool.gpus for pool in resolved("zero-and-budget").pools] == [1]
    assert [pool.gpus for pool in resolved("minimal").pools] == [0]
    assert [pool.gpus for pool in resolved("emulated").pools] == [0]


def test_the_tensor_degree_is_what_the_pipeline_leaves_of_the_gpus() -> None:
    assert [pool.tensor for pool in resolved("engine-pipeline-only").pools] == [4, 1]
    assert [pool.tensor for pool in resolved("engine").pools] == [2]
    assert [pool.tensor for pool in resolved("emulated").pools] == [4]


def test_an_emulation_has_a_cold_start_in_seconds() -> None:
    emulation = resolved("emulated").engine.emulation
    assert emulation is not None
    assert (emulation.accelerator, emulation.model, emulation.cold_start_s) == ("h100", "llama-3.1-70b", 90.0)


def test_a_service_that_may_sleep_has_a_least_of_zero_and_a_budget() -> None:
    service = resolved("zero-and-budget")
    assert (service.pools[0].min, service.pools[0].max) == (0, 4)
    assert service.scaling.scale_to_zero_after_s == 300
    assert (service.scaling.budget_gpus, service.scaling.budget_dollars_per_hour) == (4, Decimal("12.50"))


def test_a_canary_and_its_default_steps() -> None:
    written, default = resolved("canary").rollout, resolved("minimal").rollout
    assert (written.steps, written.window_s, written.drain_timeout_s) == ((1, 10, 50, 100), 600, 600)
    assert (default.steps, default.window_s, default.drain_timeout_s) == ((5, 25, 50, 100), 300, 300)
    assert default.abort_on == {"burn", "errors", "restarts"}


def test_a_pause_is_read_from_the_annotation() -> None:
    assert resolved("paused-with-status").pause_until == "2026-02-01T00:00:00Z"
    assert resolved("minimal").pause_until is None


def test_speculation_and_offload_are_numbers() -> None:
    engine = resolved("engine").engine
    assert engine.host_offload_bytes == 16 * 2**30
    assert engine.speculation is not None
    assert (engine.speculation.method, engine.speculation.tokens) == ("draft", 4)


def test_a_disk_is_a_number_of_bytes_and_reservations_are_shares() -> None:
    service = resolved("engine-disk")
    assert service.engine.disk_offload_bytes == 200 * 2**30
    assert {cls: found.reserved for cls, found in service.classes.items()} == {
        INTERACTIVE: 0.25,
        BATCH: 0.1,
        OFFLINE: 0,
    }
    assert resolved("engine").engine.disk_offload_bytes == 0
    assert not any(found.reserved for found in resolved("promise").classes.values())


def test_a_workload_of_somebody_else_is_named() -> None:
    assert resolved("runtime-existing-deployment").runtime.workload == "llama"


@cases("name", [name for name, document in valid().items() if document["kind"] == "InferenceService"])
def test_every_valid_service_resolves_within_its_own_bounds(name: str) -> None:
    service = resolved(name)
    assert set(service.classes) == set(RequestClass)
    for pool in service.pools:
        assert 0 <= pool.min <= max(pool.max, pool.min)
        assert pool.max >= 1
        assert pool.tensor >= 1


def test_a_tenant_without_classes_may_use_all_and_is_interactive() -> None:
    found = tenant()
    assert found.classes == (INTERACTIVE, BATCH, OFFLINE)
    assert (found.default_class, found.weight, found.requests_per_minute) == (INTERACTIVE, 1, None)


def test_a_tenant_without_interactive_defaults_to_its_first_class() -> None:
    assert tenant(classes=["offline", "batch"]).default_class is OFFLINE
    assert tenant(classes=["offline", "batch"], defaultClass="batch").default_class is BATCH


def test_a_tenants_budget_is_exact_money() -> None:
    assert tenant(limits={"monthly": {"dollars": "0.10"}}).monthly_dollars == Decimal("0.10")


@pytest.mark.parametrize(
    ("services", "service", "allowed"),
    [
        (["*"], "a/b", True),
        (["a/*"], "a/b", True),
        (["a/*"], "ab/b", False),
        (["a/b"], "a/b", True),
        (["a/b"], "a/bc", False),
    ],
)
def test_a_tenant_sees_only_the_services_it_may_use(services: list[str], service: str, allowed: bool) -> None:
    assert tenant(services=services).allows(service) is allowed


def test_a_route_without_weights_shares_evenly() -> None:
    route = validate(valid()["route-minimal"])
    assert isinstance(route, InferenceRoute)
    found = resolve_route(route)
    assert [weight for _, weight in found.backends] == [1]
    assert (found.attempts, found.retry_budget, found.cascade, found.degrade) == (2, 0.2, None, None)


@pytest.mark.parametrize(
    ("more", "attempts"),
    [
        ({}, 2),
        ({"fallback": ["small"]}, 3),
        ({"backends": [{"service": "a"}, {"service": "b", "when": "failure"}]}, 3),
        ({"fallback": ["small"], "retry": {"attempts": 1}}, 1),
    ],
)
def test_a_route_with_somewhere_else_to_go_has_an_attempt_more_unless_told_otherwise(
    more: dict[str, object], attempts: int
) -> None:
    minimal = valid()["route-minimal"]
    route = validate(minimal | {"spec": minimal["spec"] | more})
    assert isinstance(route, InferenceRoute)
    assert resolve_route(route).attempts == attempts


def test_a_route_resolves_its_cascade_and_its_degrade() -> None:
    route = validate(valid()["route"])
    assert isinstance(route, InferenceRoute)
    found = resolve_route(route)
    assert found.cascade is not None
    assert found.degrade is not None
    assert (found.cascade.first, found.degrade.after_s) == ("llama-3.1-8b", 30)
    assert [weight for _, weight in found.backends] == [90, 10, 1, 1]
