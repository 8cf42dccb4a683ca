"""Two operators on one cluster: one writes, the other waits, and a suspended leader does no harm."""

import signal
from collections.abc import Iterator

import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, Running, await_true, children, home, service

pytestmark = pytest.mark.real
TAKEOVER_S = 20.0
CHILDREN = 3 + 3


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("leaders")) as made:
        yield made


@pytest.fixture
def team(apiserver: Workbench) -> Iterator[str]:
    with apiserver.namespace() as name:
        yield name


def leads(running: Running) -> bool:
    return running.value("paceline_operator_leader") == 1


def test_one_leads_and_the_other_takes_over_at_once_when_it_is_ended(place: Home, team: str) -> None:
    with place.operator("one") as one:
        await_true("one leads", lambda: leads(one.await_ready()))
        with place.operator("two") as two:
            two.await_ready()
            place.bench.kubectl.apply(service("first", team))
            await_true("one works", lambda: len(children(place.bench, team)) == CHILDREN)
            assert not leads(two)
            one.stop()
            await_true("two leads", lambda: leads(two), TAKEOVER_S)
            place.bench.kubectl.apply(service("second", team))
            await_true("two works", lambda: len(children(place.bench, team)) == CHILDREN + 3)
            two.stop()  # the next test need not wait for its lease


def test_a_killed_leader_is_followed_after_its_lease(place: Home, team: str) -> None:
    with place.operator("one") as one:
        await_true("one leads", lambda: leads(one.await_ready()))
        with place.operator("two") as two:
            two.await_ready()
            one.kill()
            await_true("two leads", lambda: leads(two), TAKEOVER_S)
            place.bench.kubectl.apply(service("chat", team))
            await_true("two works", lambda: len(children(place.bench, team)) == CHILDREN)
            two.stop()


def test_a_leader_suspended_past_its_lease_wakes_up_and_writes_nothing(place: Home, team: str) -> None:
    with place.operator("one") as one:
        await_true("one leads", lambda: leads(one.await_ready()))
        with place.operator("two") as two:
            two.await_ready()
            one.process.send_signal(signal.SIGSTOP)
            place.bench.kubectl.apply(service("chat", team))
            await_true("two leads", lambda: leads(two), TAKEOVER_S)
            await_true("two works", lambda: len(children(place.bench, team)) == CHILDREN)
            two.await_calm()
            made = {at: each["metadata"]["uid"] for at, each in children(place.bench, team).items()}
            one.process.send_signal(signal.SIGCONT)
            await_true("one stands by", lambda: not leads(one))
            assert {at: each["metadata"]["uid"] for at, each in children(place.bench, team).items()} == made
            assert leads(two)
