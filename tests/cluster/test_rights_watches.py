"""Rights to list and to watch: without them the operator says which, changes nothing, and is itself again after.

A watch that stands outlives its right until it is begun anew, so each case starts a process that lacks the right.
A refused watch ages and is no illness: the same process works on when the right is back.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx
import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, children, home, service
from tests.cluster.rights import MENDED_S, Roles, Stage, labelled

pytestmark = pytest.mark.real
OBJECTS = {
    "acceleratorprofiles": "AcceleratorProfile",
    "inferenceroutes": "InferenceRoute",
    "inferenceservices": "InferenceService",
    "tenants": "Tenant",
}
CHILDREN = {
    "configmaps": "ConfigMap",
    "deployments": "Deployment",
    "networkpolicies": "NetworkPolicy",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "serviceaccounts": "ServiceAccount",
    "services": "Service",
}
SILENCE_S = 12.0
"""Longer than the longest pause between two tries."""


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("watches")) as made:
        yield made


@contextmanager
def _acts(place: Home) -> Iterator[tuple[str, httpx.Client]]:
    with place.bench.namespace() as team, place.bench.machine.api() as api:
        yield team, api


def words(verb: str, resource: str) -> str:
    return f'cannot {verb} resource "{resource}"'


def unready(stage: Stage) -> str:
    return httpx.get(f"{stage.running.url()}/readyz").text


def age(stage: Stage, kind: str) -> float:
    return labelled(stage.running, "paceline_operator_watch_age_seconds", kind)


def await_told(stage: Stage, told: str) -> None:
    await_true(f"it is told that it {told}", lambda: told in unready(stage) or stage.logged(told), MENDED_S)


def test_the_rights_to_list_and_watch_are_those_of_this_file(place: Home) -> None:
    given = {(right.resource, right.verb) for right in Roles.read(place).rights if right.verb in {"list", "watch"}}
    assert given == {(name, verb) for name in OBJECTS | CHILDREN for verb in ("list", "watch")} | {("pods", "list")}


def test_a_process_that_may_list_nothing_says_so_kind_by_kind_and_begins_when_it_may(place: Home) -> None:
    roles, missing = Roles.read(place), [*CHILDREN, *sorted(OBJECTS, key=OBJECTS.__getitem__)]
    roles.set(*((name, "list") for name in missing))
    try:
        with _acts(place) as (team, api), place.operator() as running:
            stage = Stage(place, running, team, api, 0)
            place.bench.kubectl.apply(service("chat", team))
            for name in list(missing):
                await_told(stage, words("list", name))
                assert (OBJECTS | CHILDREN)[name] in unready(stage)
                missing.remove(name)
                roles.set(*((left, "list") for left in missing))
            await_true("it is ready", lambda: unready(stage) == "ok", MENDED_S)
            await_true("it works", lambda: ("Deployment", "chat-main") in children(place.bench, team), MENDED_S)
    finally:
        roles.set()


@pytest.mark.parametrize("name", CHILDREN)
def test_children_that_may_not_be_watched_are_named_by_every_service_until_they_may(place: Home, name: str) -> None:
    roles = Roles.read(place)
    with _acts(place) as (team, api), roles.without((name, "watch")), place.operator() as running:
        stage = Stage(place, running, team, api, 0)
        place.bench.kubectl.apply(service("chat", team))
        told = words("watch", name)
        await_true(f"it {told}", lambda: stage.logged(told) and told in stage.condition()[2], MENDED_S)
        roles.set()
        await_true("it works", lambda: stage.condition()[0] == "False", MENDED_S)
        assert ("Deployment", "chat-main") in children(place.bench, team)


def test_kinds_that_may_not_be_watched_are_told_once_and_followed_by_the_same_process_when_they_may(
    place: Home,
) -> None:
    roles, kinds = Roles.read(place), set(OBJECTS.values())
    refused = [(name, "watch") for name in OBJECTS]
    with _acts(place) as (team, api), roles.without(*refused), place.operator() as running:
        stage = Stage(place, running, team, api, 0)
        for name in OBJECTS:
            await_told(stage, words("watch", name))
        time.sleep(SILENCE_S)
        lost = [line for line in running.lines.splitlines() if "a watch is lost" in line]
        assert sum(words("watch", name) in json.loads(line)["reason"] for line in lost for name in OBJECTS) == len(lost)
        assert len(lost) == len(OBJECTS)
        assert max(map(partial(age, stage), kinds)) < SILENCE_S  # each try lists the kind
        roles.set()
        await_true("a watch is back", lambda: stage.logged("a watch is back"), MENDED_S)
        place.bench.kubectl.apply(service("chat", team))
        await_true("it works", lambda: ("Deployment", "chat-main") in children(place.bench, team), MENDED_S)
        assert running.process.poll() is None
