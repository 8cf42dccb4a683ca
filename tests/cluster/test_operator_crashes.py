"""The crash matrix: an operator dies after its k-th write, for every k of a change, and the next one finishes it.

The number of writes is counted, not known: k goes up until a process survives the change.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, Running, await_true, children, home, pool, service

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
CRASHING = "tests.cluster.crashing_operator"
MOST = 40
EDITED = {"env": [{"name": "EDITED", "value": "yes"}]}
SHARED = {("ServiceAccount", "paceline-worker"), ("ConfigMap", "paceline-trust"), ("NetworkPolicy", "paceline-workers")}


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("crashes")) as made:
        with made.operator() as running:
            running.await_calm()  # hop keys are made once and are no part of what is counted
            running.stop()
        yield made


@dataclass(frozen=True)
class Story:
    """What is there before, what is then applied, and which Deployments are left."""

    before: list[dict[str, Any]]
    after: dict[str, Any]
    pools: set[str]
    scaled: dict[str, int]


def stories(team: str) -> dict[str, Story]:
    two = [pool("main"), pool("spare")]
    return {
        "create": Story([], service("chat", team), {"main"}, {"main": 2}),
        "edit": Story([service("chat", team)], service("chat", team, runtime=EDITED), {"main"}, {"main": 4}),
        "pool removal": Story([service("chat", team, pools=two)], service("chat", team), {"main"}, {"main": 4}),
    }


@pytest.mark.parametrize("name", ["create", "edit", "pool removal"])
def test_a_change_cut_off_after_any_write_is_finished_by_the_next_process(place: Home, name: str) -> None:
    for k in range(1, MOST):
        with place.bench.namespace() as team:
            story = stories(team)[name]
            before = _prepared(place, team, story)
            crashed = _crashed(place, team, story, k)
            cut = children(place.bench, team)
            with place.operator() as running:
                _await_converged(place, team, story, running)
                running.stop()
            _check(place, team, story, before, cut)
            place.bench.kubectl.within(team)("delete", "pisvc", "chat", "--ignore-not-found")
        if not crashed:
            assert k > 2, "nothing was written: the story tells nothing"
            return
    raise AssertionError(f"more than {MOST} writes for one change")


def _prepared(place: Home, team: str, story: Story) -> dict[tuple[str, str], dict[str, Any]]:
    if not story.before:
        return {}
    place.bench.kubectl.apply(*story.before)
    names = {f"chat-{each['name']}" for each in story.before[0]["spec"]["pools"]}
    with place.operator() as running:
        running.await_ready()
        wished = {("Deployment", each) for each in names}
        await_true("the service is made", lambda: wished <= set(children(place.bench, team)))
        await_true("replicas are shared", lambda: all(_shared(place, team, each) for each in names))
        running.await_calm()
        running.stop()
    for name, replicas in story.scaled.items():
        place.bench.kubectl.within(team)("scale", f"deployment/chat-{name}", f"--replicas={replicas}")
    return children(place.bench, team)


def _shared(place: Home, team: str, name: str) -> bool:
    found = place.bench.kubectl.within(team).json("get", "deployment", name, "--show-managed-fields")
    owners = {
        each["manager"]
        for each in found["metadata"]["managedFields"]
        if "f:replicas" in each["fieldsV1"].get("f:spec", {})
    }
    return bool(owners - {"paceline-operator"})  # whoever scaled it last, or `paceline-replicas` before anybody did


def _crashed(place: Home, team: str, story: Story, k: int) -> bool:
    """Whether the k-th write was reached."""
    place.bench.kubectl.apply(story.after)
    with place.operator("doomed", CRASHING, PACELINE_TEST_CRASH_AFTER=str(k)) as running:
        await_true("it dies or has nothing to do", lambda: _ended(running) or _done(place, team, story, running))
        return _ended(running)


def _done(place: Home, team: str, story: Story, running: Running) -> bool:
    if not _finished(place, team, story):
        return False
    time.sleep(4.0)  # the first "not ready" is held back for three seconds
    return True


def _ended(running: Running) -> bool:
    status = running.process.poll()
    assert status in (None, 9), running.lines
    return status == 9


def _finished(place: Home, team: str, story: Story) -> bool:
    found = place.bench.kubectl.within(team).json("get", "pisvc", "chat")
    seen = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
    return seen and set(children(place.bench, team)) == _wished(story)


def _wished(story: Story) -> set[tuple[str, str]]:
    own = {("Service", "chat-workers"), ("PodDisruptionBudget", "chat-workers")}
    return SHARED | own | {("Deployment", f"chat-{each}") for each in story.pools}


def _await_converged(place: Home, team: str, story: Story, running: Running) -> None:
    running.await_ready()
    await_true("the next one finishes", lambda: _finished(place, team, story))
    await_true("replicas are shared", lambda: all(_shared(place, team, f"chat-{each}") for each in story.pools))
    running.await_calm()


def _check(
    place: Home,
    team: str,
    story: Story,
    before: dict[tuple[str, str], dict[str, Any]],
    cut: dict[tuple[str, str], dict[str, Any]],
) -> None:
    after = children(place.bench, team)
    for known in (before, cut):
        same = {at for at in known if at in after}
        assert {at: known[at]["metadata"]["uid"] for at in same} == {at: after[at]["metadata"]["uid"] for at in same}
    for name, replicas in story.scaled.items():
        assert after["Deployment", f"chat-{name}"]["spec"]["replicas"] == replicas
    wished = "EDITED" in str(story.after)
    assert ("EDITED" in str(after["Deployment", "chat-main"]["spec"])) == wished
