"""From the object to the goal: bounds, prices, priors."""

from typing import Any

import pytest

from paceline_autoscaler.cluster_state import ClusterView
from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.types import MissingSignal
from paceline_core.kube import Deleted, Listed, ObjectKey, Upserted, WatchLost
from paceline_core.objects import API_VERSION, resolve, validate
from paceline_core.objects.service import InferenceService

KEY = ObjectKey("default", "chat")


def manifest(**spec: Any) -> dict[str, Any]:
    base = {
        "model": {"source": "builtin://demo"},
        "pools": [{"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": 4}}],
    }
    metadata = {"name": "chat", "namespace": "default", "annotations": spec.pop("annotations", {})}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {**base, **spec},
    }


def resolved(**spec: Any) -> Any:
    service = validate(manifest(**spec))
    assert isinstance(service, InferenceService)
    return resolve(service)


def profile(name: str, price: str) -> dict[str, Any]:
    spec = {"memory": "80G", "bandwidth": "3350G", "teraflops": {"bf16": 989}, "dollarsPerHour": price}
    return {
        "apiVersion": API_VERSION,
        "kind": "AcceleratorProfile",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_targets_bounds_and_prices_come_from_the_object_and_the_catalogue() -> None:
    slo = {"ttft": {"p95": "500ms"}, "tpot": {"p50": "40ms"}}
    wish = scaling_spec(resolved(classes={"interactive": {"slo": slo}}))
    assert [(target.name, target.seconds) for target in wish.targets] == [("ttft_p95", 0.5), ("tpot_p50", 0.04)]
    (pool,) = wish.pools
    assert (pool.name, pool.min, pool.max, pool.gpus, pool.dollars_per_hour) == ("main", 1, 4, 1, 3.93)


def test_an_emulated_service_is_priced_as_what_it_emulates() -> None:
    emulate = {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "20s"}
    pools = [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 4}}]
    wish = scaling_spec(resolved(engine={"emulate": emulate}, pools=pools))
    assert (wish.pools[0].gpus, wish.pools[0].dollars_per_hour, wish.start_prior_s) == (1, 3.93, 20.0)


def test_a_process_on_cpus_is_not_thought_to_start_like_a_node_of_gpus() -> None:
    pools = [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 4}}]
    assert scaling_spec(resolved(pools=pools)).start_prior_s == 10.0
    assert scaling_spec(resolved(pools=[{"name": "main", "accelerator": "h100"}])).start_prior_s == 81.0


def test_several_gpus_cost_several_times() -> None:
    pools = [{"name": "main", "accelerator": "h100", "gpusPerReplica": 4}]
    assert scaling_spec(resolved(pools=pools)).pools[0].dollars_per_hour == pytest.approx(15.72)


def test_an_unknown_accelerator_costs_nothing_and_stops_nothing() -> None:
    pools = [{"name": "main", "accelerator": "moon1"}]
    assert scaling_spec(resolved(pools=pools)).pools[0].dollars_per_hour == 0.0


def test_scaling_rollout_and_pause_are_carried_over() -> None:
    wish = scaling_spec(
        resolved(
            scaling={"scaleToZero": {"after": "5m"}, "budget": {"gpus": 8, "dollarsPerHour": "20.50"}},
            rollout={"drainTimeout": "90s"},
            pools=[{"name": "main", "accelerator": "h100", "replicas": {"max": 4}}],
            annotations={
                "paceline.dev/pause-until": "2030-01-01T00:00:00Z",
                "paceline.dev/pause-reason": "launch",
            },
        )
    )
    assert (wish.idle_after_s, wish.budget_gpus, wish.budget_dollars_per_hour) == (300.0, 8, 20.5)
    assert wish.pause_reason == "launch"
    assert (wish.drain_limit_s, wish.pause_until, wish.pools[0].min) == (90.0, "2030-01-01T00:00:00Z", 0)


def test_a_list_replaces_what_was_known_and_changes_amend_it() -> None:
    world = ClusterView()
    world.on_service(Listed((manifest(),)))
    assert set(world.specs) == {KEY}
    world.on_service(Upserted(manifest(scaling={"policy": "fixed"})))
    assert world.specs[KEY].policy == "fixed"
    world.on_service(Deleted(manifest()))
    assert world.specs == {}
    world.on_service(Upserted(manifest()))
    world.on_service(Listed(()))
    assert world.specs == {}


def test_a_broken_watch_keeps_the_view_and_reports_that_it_ages() -> None:
    world = ClusterView()
    assert not world.known
    world.on_service(Listed((manifest(),)))
    world.on_workers(Listed(()))
    assert (world.known, world.lost) == (True, {})
    world.on_workers(WatchLost("the server closed the watch"))
    assert MissingSignal.ENDPOINTS in world.lost
    assert (world.known, set(world.specs)) == (True, {KEY})
    assert world.lost == {MissingSignal.ENDPOINTS: "the server closed the watch"}
    world.on_workers(Listed(()))
    assert (world.known, world.lost) == (True, {})


def test_before_its_first_list_a_lost_watch_leaves_the_view_unknown() -> None:
    world = ClusterView()
    world.on_workers(Listed(()))
    world.on_service(WatchLost("forbidden"))
    assert (world.known, MissingSignal.OBJECTS in world.lost) == (False, True)


def test_an_object_that_is_not_understood_leaves_the_last_form_in_force() -> None:
    world = ClusterView()
    world.on_service(Listed((manifest(),)))
    world.on_service(Upserted(manifest(pools="nonsense")))
    assert world.specs[KEY].pools[0].max == 4


def test_a_profile_sets_the_price_of_its_accelerator() -> None:
    world = ClusterView()
    world.on_service(Listed((manifest(),)))
    world.on_profile(Listed((profile("h100", "1.25"), profile("broken", "a lot"))))
    assert world.specs[KEY].pools[0].dollars_per_hour == 1.25
    world.on_profile(Deleted(profile("h100", "1.25")))
    assert world.specs[KEY].pools[0].dollars_per_hour == 3.93
