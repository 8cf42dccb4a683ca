from collections.abc import Callable

import pytest
from tests.operator_shell.fake_api import FOREIGN, FakeApi, LostAnswer
from tests.operator_shell.rig import Rig, pool, service, shared_item

from paceline_core.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from paceline_core.kube import ObjectKey, Upserted, WatchLost
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.controllers.inferenceservice import BULK_STARTS
from paceline_operator.plans.status import HOLD_S, initial_delay_s
from paceline_operator.state.child_cache import CHILD_KINDS
from paceline_operator.state.workqueue import ReconcileKey

CHAT = ReconcileKey(INFERENCE_SERVICE, ObjectKey("default", "chat"))
MAIN = ("Deployment", ObjectKey("default", "chat-main"))


def forbidden() -> Exception:
    return Forbidden(403, "Forbidden", 'deployments.apps is forbidden: User "op" cannot patch resource "deployments"')


FAULTS: dict[str, Callable[[], Exception]] = {
    "conflict": lambda: Conflict("the object has been modified"),
    "forbidden": forbidden,
    "invalid": lambda: ApiError(422, "Invalid", "spec.replicas: must be positive"),
    "too many requests": lambda: ApiError(429, "TooManyRequests", "slow down", 3.0),
    "server error": lambda: Unreachable("the API server answered 500"),
    "lost answer": lambda: LostAnswer("no answer in 10 s"),
}


async def undisturbed() -> tuple[dict[tuple[str, ObjectKey], Manifest], int]:
    api = FakeApi()
    api.put(service())
    await (await Rig(api).start()).settle(300.0)
    return api.children(*CHILD_KINDS), len(api.writes)


def specs(children: dict[tuple[str, ObjectKey], Manifest]) -> dict[tuple[str, ObjectKey], object]:
    return {place: found.get("spec", found.get("data")) for place, found in children.items()}


def condition(api: FakeApi, kind: str, key: ObjectKey = CHAT.key) -> dict[str, str]:
    conditions = api.objects[INFERENCE_SERVICE, key]["status"]["conditions"]
    found: dict[str, str] = next(one for one in conditions if one["type"] == kind)
    return found


async def test_a_service_gets_its_children_and_its_deployment_the_least_replicas() -> None:
    children, _ = await undisturbed()
    assert {kind for kind, _ in children} == set(CHILD_KINDS)
    assert children[MAIN]["spec"]["replicas"] == 2


async def test_a_first_creation_is_reported_once_and_a_child_made_again_too() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    everything = "Created Service chat-workers, PodDisruptionBudget chat-workers, Deployment chat-main."
    assert [event.message for event in rig.told] == [everything]
    api.remove(*MAIN)
    await rig.settle()
    assert [event.message for event in rig.told] == [everything, "Created Deployment chat-main."]


async def test_what_was_done_is_reported_once_also_where_the_status_could_not_be_written() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    rig.told.clear()
    api.remove(*MAIN)
    faults = iter([Unreachable("the API server answered 500")])
    api.fault = lambda _, verb, __: next(faults, None) if verb == "status" else None
    await rig.settle(60.0)
    assert [event.message for event in rig.told] == ["Created Deployment chat-main."]
    assert next(faults, None) is None


async def test_services_that_start_together_are_reported_late_and_one_alone_is_not() -> None:
    for count, told in ((2 * BULK_STARTS, 0), (1, 1)):
        api = FakeApi(starts=False)
        for number in range(count):
            api.put(service(f"chat-{number}"))
        rig = await Rig(api).start()
        await rig.settle(HOLD_S)
        assert sum("status" in found for (kind, _), found in api.objects.items() if kind == INFERENCE_SERVICE) == told
        await rig.settle(initial_delay_s(count))
        assert all("status" in found for (kind, _), found in api.objects.items() if kind == INFERENCE_SERVICE)


async def test_a_converged_service_is_not_written_again_by_the_next_process() -> None:
    api = FakeApi()
    api.put(service())
    await (await Rig(api).start()).settle(300.0)
    before = len(api.writes)
    await (await Rig(api).start()).settle(300.0)
    assert len(api.writes) == before


@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_fails_at_whichever_write_the_end_is_the_same(fault: str) -> None:
    desired, count = await undisturbed()
    for k in range(1, count + 1):
        api = FakeApi()
        api.fault = lambda n, *_, k=k: FAULTS[fault]() if n == k else None
        api.put(service())
        await (await Rig(api).start()).settle(300.0)
        assert specs(api.children(*CHILD_KINDS)) == specs(desired), f"write {k}: {api.writes}"
        assert condition(api, "Degraded")["status"] == "False", f"write {k}"


async def test_a_process_that_dies_after_any_write_is_finished_by_the_next_one() -> None:
    desired, count = await undisturbed()

    class Died(BaseException):
        pass

    for k in range(1, count):
        api = FakeApi()

        def die(n: int, *_: str, k: int = k) -> Exception | None:
            if n > k:
                raise Died
            return None

        api.fault = die
        api.put(service())
        first = await Rig(api).start()
        with pytest.raises(Died):
            await first.settle(300.0)
        uids = {place: found["metadata"]["uid"] for place, found in api.children(*CHILD_KINDS).items()}
        api.fault = lambda *_: None
        await (await Rig(api).start()).settle(300.0)
        left = api.children(*CHILD_KINDS)
        assert specs(left) == specs(desired), f"after write {k}"
        assert {place: left[place]["metadata"]["uid"] for place in uids} == uids


async def test_replicas_that_the_autoscaler_set_survive_edits_and_restarts() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    scaled = await api.get_deployment(MAIN[1])
    scaled["spec"]["replicas"] = 4
    api.put(scaled)
    api.put({**api.objects[INFERENCE_SERVICE, CHAT.key], "spec": service(rollout={"drainTimeout": "90s"})["spec"]})
    await rig.settle()
    await (await Rig(api).start()).settle()
    assert api.objects[MAIN]["spec"]["replicas"] == 4


async def test_a_missing_right_is_reported_with_its_words_and_cleared_when_it_is_back() -> None:
    api = FakeApi()
    api.put(service())
    api.fault = lambda _, verb, kind: forbidden() if (verb, kind) == ("apply", "Deployment") else None
    rig = await Rig(api).start()
    await rig.settle(3.0)
    said = condition(api, "Degraded")
    assert (said["status"], said["reason"]) == ("True", "Forbidden")
    assert 'cannot patch resource "deployments"' in said["message"]
    writes = len([write for write in api.writes if write.startswith("status")])
    await rig.settle(60.0)
    assert len([write for write in api.writes if write.startswith("status")]) == writes
    api.fault = lambda *_: None
    await rig.settle(300.0)
    assert condition(api, "Degraded")["status"] == "False"


async def test_a_kind_that_may_not_be_watched_is_named_and_nothing_is_done_blindly() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    api.remove(*MAIN)
    rig.skip()
    rig.state.on_event(
        "Deployment", WatchLost('deployments.apps is forbidden: User "op" cannot watch resource "deployments"')
    )
    await rig.settle(5.0)
    said = condition(api, "Degraded")
    assert (said["status"], said["reason"]) == ("True", "Forbidden")
    assert 'cannot watch resource "deployments"' in said["message"]
    assert MAIN not in api.objects
    await rig.relist("Deployment")
    await rig.settle(300.0)
    assert condition(api, "Degraded")["status"] == "False"
    assert MAIN in api.objects


async def test_a_watch_lost_for_another_reason_stops_nobody() -> None:
    api = FakeApi()
    rig = await Rig(api).start()
    rig.state.on_event("Deployment", WatchLost("the API server did not answer"))
    api.put(service())
    await rig.settle()
    assert MAIN in api.objects


async def test_an_unmanaged_object_in_a_childs_place_is_reported_and_never_touched() -> None:
    api = FakeApi()
    unmanaged = api.put(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "chat-main",
                "namespace": "default",
                "managedFields": [{"manager": FOREIGN, "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
            },
            "spec": {"replicas": 7},
        }
    )
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle(30.0)
    assert api.objects[MAIN] == unmanaged
    assert "chat-main" in str(api.objects[INFERENCE_SERVICE, CHAT.key]["status"]["conditions"])
    api.remove(*MAIN)
    await rig.settle(120.0)
    assert api.objects[MAIN]["spec"]["replicas"] == 2


async def test_a_child_deleted_unseen_is_made_again_after_a_relist() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    api.remove(*MAIN)
    rig.skip()
    await rig.relist("Deployment")
    await rig.settle()
    assert MAIN in api.objects


async def test_a_pool_that_the_spec_no_longer_has_goes_and_nothing_else_does() -> None:
    api = FakeApi()
    api.put(service(pools=[pool("main"), pool("spare")]))
    rig = await Rig(api).start()
    await rig.settle()
    main = api.objects[MAIN]["metadata"]["uid"]
    api.put({**api.objects[INFERENCE_SERVICE, CHAT.key], "spec": service()["spec"]})
    await rig.settle(60.0)
    deployments = [place for place in api.objects if place[0] == "Deployment"]
    assert deployments == [MAIN]
    assert api.objects[MAIN]["metadata"]["uid"] == main


async def test_what_services_share_goes_with_the_last_of_them() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    api.remove(INFERENCE_SERVICE, CHAT.key)
    await rig.settle()
    assert api.children(*CHILD_KINDS) == {}


async def test_an_object_that_breaks_its_plan_is_its_own_problem() -> None:
    api = FakeApi()
    api.put(service("bad"))
    api.put(service("good"))
    rig = await Rig(api).start()
    stored = api.objects[INFERENCE_SERVICE, ObjectKey("default", "bad")]
    stored["metadata"]["generation"] = "poison"
    rig.state.on_event(
        INFERENCE_SERVICE, Upserted({**stored, "metadata": {**stored["metadata"], "resourceVersion": "9999"}})
    )
    done = await rig.settle(30.0)
    assert ("Deployment", ObjectKey("default", "good-main")) in api.objects
    bad = [result for item, result in done if item.key.name == "bad"]
    assert len(bad) < 10


async def test_a_process_that_does_not_lead_writes_nothing() -> None:
    api = FakeApi()
    api.put(service())
    rig = Rig(api)
    rig.leases.held = False
    await rig.start()
    await rig.settle(60.0)
    assert api.writes == []


async def test_a_leader_that_lost_its_lease_in_a_pass_stops_before_the_next_write() -> None:
    api = FakeApi()
    api.put(service())
    rig = Rig(api)

    def lose(*_: object) -> None:
        rig.leases.held = False
        rig.clock.advance(11.0)

    api.fault = lose
    await rig.start()
    await rig.settle(60.0)
    assert len(api.writes) == 1


async def test_two_leaders_at_once_make_each_child_once() -> None:
    api = FakeApi()
    api.put(service())
    one, two = await Rig(api).start(), await Rig(api).start()
    for _ in range(200):
        await one.step()
        await two.step()
        one.hear()
        two.hear()
        one.clock.advance(0.1)
        two.clock.advance(0.1)
    desired, _ = await undisturbed()
    assert specs(api.children(*CHILD_KINDS)) == specs(desired)


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden(403, "Forbidden", "unable to create new content in namespace default because it is being terminated"),
        NotFound('namespaces "default" not found'),
    ],
)
async def test_a_namespace_that_goes_away_is_left_alone_and_is_nobodys_fault(
    refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    api = FakeApi()
    api.put(service())
    api.fault = lambda *_: refusal
    rig = await Rig(api).start()
    done = await rig.settle(29.0)
    assert len(api.writes) < 4
    assert not [write for write in api.writes if write.startswith("status")]
    assert rig.executor.terminates(shared_item().key.name)
    assert not [result for item, result in done if result.failed]
    assert not [one for one in caplog.records if one.levelname == "WARNING"]
