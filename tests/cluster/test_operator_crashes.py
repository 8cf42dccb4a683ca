"""The crash matrix: an operator dies after its k-th write, for every k of a change, and the next one finishes it.

Each k has a namespace of its own, and the process that dies there sees no other. k goes up until a process survives the
change; the audit log shows that it wrote less than k times, so no place to die is left out. One operator then finishes
all of them, and those that nobody touched, and they are compared with what the survivor made.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.cluster.crashing_operator import DIED
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, home, pool, service

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
KINDS = "serviceaccount,configmap,networkpolicy,service,poddisruptionbudget,deployment"
OURS = "--selector=app.kubernetes.io/managed-by=paceline"
QUIET_S = 2.5
"""A status that is there already is written again after two seconds at the latest."""
EDITED = {"env": [{"name": "EDITED", "value": "yes"}]}
SHARED = {("ServiceAccount", "paceline-worker"), ("ConfigMap", "paceline-trust"), ("NetworkPolicy", "paceline-workers")}
OWN = {("Service", "chat-workers"), ("PodDisruptionBudget", "chat-workers"), ("Deployment", "chat-main")}

Children = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("crashes")) as made:
        with made.operator() as running:
            running.await_calm()  # signing keys are made once and are no part of what is counted
            running.stop()
        yield made


@dataclass(frozen=True)
class Story:
    """What is there before, perhaps scaled to four by somebody else, and what is then applied.

    There are more namespaces than writes.
    """

    name: str
    teams: int
    before: Callable[[str], dict[str, Any]] | None
    after: Callable[[str], dict[str, Any]]
    scaled: bool = False

    @property
    def replicas(self) -> int:
        """Those of the pool at the end: what somebody else set, or the pool's least."""
        return 4 if self.scaled else 2


def plain(team: str) -> dict[str, Any]:
    return service("chat", team)


def edited(team: str) -> dict[str, Any]:
    return service("chat", team, runtime=EDITED)


STORIES = [
    Story("create", 12, None, plain),
    Story("edit", 6, plain, edited, scaled=True),
    Story("first edit of what nobody scaled", 7, plain, edited),
    Story("pool removal", 8, lambda team: service("chat", team, pools=[pool("main"), pool("spare")]), plain, True),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_change_cut_off_after_any_write_is_finished_by_the_next_process(place: Home, story: Story) -> None:
    with namespaces(place.bench, story.teams) as teams:
        before = _prepared(place, teams, story)
        place.bench.kubectl.apply(*map(story.after, teams))
        whole = next((team for k, team in enumerate(teams, 1) if not _dies(place, team, k)), "")
        assert whole, "more writes than namespaces"
        cut = children(place.bench, teams)
        assert set(cut[whole]) == SHARED | OWN
        with place.operator("doomed") as running:
            running.await_ready()
            await_true("the next one finishes", lambda: _finished(place, teams, SHARED | OWN))
            running.await_calm()
        after = children(place.bench, teams)
        for team in teams:
            assert _contents(team, after[team]) == _contents(whole, cut[whole])
            assert _kept(before[team], after[team])
            assert _kept(cut[team], after[team])
            assert after[team]["Deployment", "chat-main"]["spec"]["replicas"] == story.replicas


@contextmanager
def namespaces(bench: Workbench, count: int) -> Iterator[list[str]]:
    """One for each k, and some that no process dies in."""
    names = [f"crash-{secrets.token_hex(4)}" for _ in range(count)]
    bench.kubectl.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))
    try:
        yield names
    finally:
        bench.kubectl("delete", "namespace", *names, "--wait=false")


def children(bench: Workbench, teams: list[str]) -> dict[str, Children]:
    """Everything of ours, by namespace, then by kind and name."""
    found: dict[str, Children] = {team: {} for team in teams}
    for item in bench.kubectl.json("get", KINDS, "--all-namespaces", OURS, "--show-managed-fields")["items"]:
        metadata = item["metadata"]
        found.get(metadata["namespace"], {})[item["kind"], metadata["name"]] = item
    return found


def _prepared(place: Home, teams: list[str], story: Story) -> dict[str, Children]:
    if story.before is None:
        return children(place.bench, teams)
    made = [story.before(team) for team in teams]
    place.bench.kubectl.apply(*made)
    names = {("Deployment", f"chat-{each['name']}") for each in made[0]["spec"]["pools"]}
    with place.operator("doomed") as running:
        running.await_ready()
        await_true("the services are made", lambda: _finished(place, teams, SHARED | OWN | names))
        running.await_calm()
    if not story.scaled:
        return children(place.bench, teams)
    scaled = [_reference(team, name) for team in teams for _, name in names]
    place.bench.kubectl("scale", "--replicas=4", "--filename=-", manifest=_listed(scaled))
    return children(place.bench, teams)


def _reference(team: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": team}}


def _listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _dies(place: Home, team: str, k: int) -> bool:
    """Whether the k-th write was reached; else it was never to be made."""
    mark = place.bench.audit.mark()
    with replace(place, watched=(team,)).operator("doomed", dies_after=k) as running:
        await_true("it dies or is done", lambda: running.process.poll() is not None or _done(place, team, mark))
        died = running.process.poll()
    wrote = place.writes(mark)
    assert (died == DIED and len(wrote) >= k) or (died is None and 0 < len(wrote) < k), (running.lines, wrote)
    return died == DIED


def _done(place: Home, team: str, mark: int) -> bool:
    """Whether it told all, and then wrote nothing for longer than any news is held back."""
    wrote = len(place.writes(mark))
    if not wrote or not _finished(place, [team], SHARED | OWN):
        return False
    end = time.monotonic() + QUIET_S
    while len(place.writes(mark)) == wrote:
        if time.monotonic() > end:
            return True
        time.sleep(0.1)
    return False


def _finished(place: Home, teams: list[str], wished: set[tuple[str, str]]) -> bool:
    """Whether the services' status says so, and all is there."""
    found = place.bench.kubectl.json("get", "pisvc", "--all-namespaces")["items"]
    asked = [each for each in found if each["metadata"]["namespace"] in teams]
    if any(each.get("status", {}).get("observedGeneration") != each["metadata"]["generation"] for each in asked):
        return False
    return all(set(there) == wished for there in children(place.bench, teams).values())


def _contents(team: str, there: Children) -> dict[str, Any]:
    """What children say, whichever service of whichever namespace they are of."""
    main = there["Deployment", "chat-main"]
    revision = main["spec"]["template"]["metadata"]["labels"]["paceline.dev/revision"]
    own = [team, main["metadata"]["ownerReferences"][0]["uid"], revision]
    text = json.dumps({"/".join(at): {part: each.get(part) for part in ("spec", "data")} for at, each in there.items()})
    for word in own:
        text = text.replace(word, "OWN")
    contents: dict[str, Any] = json.loads(text)
    return contents


def _kept(before: Children, after: Children) -> bool:
    """Whether what was there and still is was never made anew."""
    same = before.keys() & after.keys()
    return all(before[at]["metadata"]["uid"] == after[at]["metadata"]["uid"] for at in same)
