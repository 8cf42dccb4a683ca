import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator_plans.apiserver_model import Conflicted, ModelServer

from paceline_core.auth import TokenSigner, TokenVerifier, new_signing_key, public_half
from paceline_core.auth.signing import LIFETIME_S
from paceline_core.clock import ManualClock
from paceline_core.errors import InvalidInput
from paceline_core.kube.cluster import ObjectKey
from paceline_operator.plans.key_rotation import PUBLISH_S, REGISTRY, RETIRE_S, SIGNERS, plan_keys
from paceline_operator.plans.types import MANAGER, KeysPlan, KeysView, SigningKey

DAY = 86400.0
PLACE = ("ConfigMap", ObjectKey("paceline-system", REGISTRY))


class Rotation:
    """An operator that rotates, its Secrets, and what signers and workers have after the kubelet's refresh."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self.now, self.wall = 0.0, 1_000_000.0
        self.secrets: dict[str, str] = {}
        self.made = 0
        self.restart()

    def restart(self) -> None:
        """A new process holds no private half of the old one."""
        self.held = {signer: self._fresh() for signer in SIGNERS}
        self.delivered: set[str] = set()
        self.memo: Any = {}

    def _fresh(self) -> SigningKey:
        self.made += 1
        return SigningKey(f"k{self.made}", f"public-{self.made}")

    def look(self) -> KeysPlan:
        registry = self.server.manifest(PLACE) if PLACE in self.server.stored else None
        return plan_keys(
            KeysView(
                registry, self.held, frozenset(self.delivered), "paceline-system", self.now, self.wall, memo=self.memo
            )
        )

    def step(self, seconds: float = 0.0) -> KeysPlan:
        self.now += seconds
        self.wall += seconds
        plan = self.look()
        self.memo = plan.memo
        for one in plan.deliver:
            self.secrets[one.signer] = one.kid
            self.delivered.add(one.kid)
        if plan.registry is not None:
            self.server.apply(plan.registry.manifest(), MANAGER, force=plan.registry.force)
        for signer, pair in self.held.items():
            if pair.kid in self.delivered and self.state(pair.kid) == "active":
                self.held[signer] = self._fresh()
        return plan

    def settle(self, passes: int = 12) -> None:
        for _ in range(passes):
            self.step()

    def rows(self) -> list[dict[str, Any]]:
        if PLACE not in self.server.stored:
            return []
        found: list[dict[str, Any]] = orjson.loads(self.server.manifest(PLACE)["data"]["keys.json"])
        return found

    def state(self, kid: str) -> str:
        return next((str(row["state"]) for row in self.rows() if row["kid"] == kid), "")

    def states(self, signer: str = "gateway") -> list[str]:
        return [row["state"] for row in self.rows() if row["signer"] == signer]

    def trusted(self) -> set[str]:
        return {row["kid"] for row in self.rows()}

    def rotate(self, value: str = "now") -> None:
        stored = self.server.stored[PLACE]
        stored.values["metadata", "annotations", "paceline.dev/rotate"] = f'"{value}"'


def begun() -> Rotation:
    found = Rotation()
    found.settle()
    return found


def test_a_new_install_has_a_key_for_each_signer_at_once_and_then_rests() -> None:
    found = begun()
    assert found.states("gateway") == found.states("autoscaler") == ["active"]
    assert set(found.secrets) == set(SIGNERS)
    assert set(found.secrets.values()) <= found.trusted()
    before = found.server.calls
    plan = found.step()
    assert (plan.registry, plan.deliver, found.server.calls) == (None, (), before)
    assert plan.again_s is not None
    assert plan.again_s > 29 * DAY


def test_a_key_is_trusted_as_those_that_its_own_signer_signs_as_and_no_other() -> None:
    found = begun()
    issuers = {key["kid"]: (key["x"], key["issuers"]) for key in found.look().trust["keys"]}
    public = {row["kid"]: row["public"] for row in found.rows()}
    gateway, autoscaler = found.secrets["gateway"], found.secrets["autoscaler"]
    assert issuers == {
        gateway: (public[gateway], ["gateway", "admin"]),
        autoscaler: (public[autoscaler], ["autoscaler"]),
    }


def test_the_trust_of_real_keys_is_a_jwk_set_that_verifies_what_their_private_halves_sign() -> None:
    private = {signer: new_signing_key() for signer in SIGNERS}
    found = Rotation()
    found.held = {signer: SigningKey(*public_half(key)) for signer, key in private.items()}
    trust, now = found.step().trust, ManualClock().utc()
    assert trust == {"keys": []}
    found.settle(2)
    stored = json.loads(json.dumps(dict(found.look().trust)))
    for signer, key in private.items():
        token = TokenSigner(key, signer).token("team/chat", now)
        assert TokenVerifier(stored, "team/chat").verify(token, now).issuer == signer


def test_no_private_half_ever_stands_in_the_registry() -> None:
    rows = begun().rows()
    assert all(set(row) == {"kid", "signer", "public", "state", "since"} for row in rows)
    assert all(str(row["public"]).startswith("public-") for row in rows)


@pytest.mark.parametrize("why", ["age", "annotation"])
def test_a_rotation_publishes_waits_delivers_waits_and_drops(why: str) -> None:
    found = begun()
    old = dict(found.secrets)
    if why == "age":
        found.step(31 * DAY)
    else:
        found.rotate()
        found.step()
    found.settle()
    assert found.states() == ["active", "published"]
    assert found.secrets == old
    found.step(PUBLISH_S + 1)
    found.settle()
    assert found.states() == ["retired", "active"]
    assert found.secrets["gateway"] != old["gateway"]
    assert set(old.values()) <= found.trusted()
    found.step(RETIRE_S + 1)
    assert found.states() == ["active"]
    assert found.trusted() == set(found.secrets.values())


def test_an_annotation_rotates_once() -> None:
    found = begun()
    for _ in range(3):
        found.rotate("monday")
        found.settle()
        found.step(PUBLISH_S + 1)
        found.settle()
        found.step(RETIRE_S + 1)
    assert found.states() == ["active"]
    assert found.server.manifest(PLACE)["data"]["rotated"] == "monday"
    assert len(found.rows()) == len(SIGNERS)


def test_a_key_that_was_only_published_is_replaced_after_a_restart() -> None:
    found = begun()
    found.rotate()
    found.step()
    lost = {row["kid"] for row in found.rows() if row["state"] == "published"}
    found.restart()
    found.settle()
    assert lost.isdisjoint(found.trusted())
    assert found.states() == ["active", "published"]


def test_a_key_whose_delivery_is_uncertain_stays_trusted_and_is_rotated_away() -> None:
    found = begun()
    found.rotate()
    found.step()
    found.step()
    found.step(PUBLISH_S + 1)
    uncertain = {row["kid"] for row in found.rows() if row["state"] == "delivering"}
    assert len(uncertain) == len(SIGNERS)
    found.restart()
    found.settle()
    assert uncertain <= found.trusted()
    found.step(PUBLISH_S + 1)
    found.settle()
    assert uncertain <= found.trusted()
    found.step(RETIRE_S + 1)
    assert uncertain.isdisjoint(found.trusted())
    assert found.states() == ["active"]


def test_a_clock_that_jumps_ahead_drops_no_key_early() -> None:
    found = begun()
    found.rotate()
    found.settle()
    found.wall += 3600.0
    found.step()
    assert found.states() == ["active", "published"]
    found.step(PUBLISH_S + 1)
    found.settle()
    found.wall += 3600.0
    found.step()
    assert found.states() == ["retired", "active"]


def test_a_clock_that_goes_back_still_ends_with_one_key() -> None:
    found = begun()
    found.wall -= 3600.0
    found.rotate()
    for _ in range(12):
        found.settle(2)
        found.step(PUBLISH_S + RETIRE_S)
    assert found.states() == ["active"]
    assert found.trusted() == set(found.secrets.values())


def test_of_two_operators_one_takes_the_step() -> None:
    found = begun()
    found.rotate()
    other = found.look()
    found.step()
    assert other.registry is not None
    with pytest.raises(Conflicted):
        found.server.apply(other.registry.manifest(), "paceline-operator-2", force=other.registry.force)


@pytest.mark.parametrize("text", ["nonsense", "{}", '[{"kid": 1}]', '[{"kid":"a","signer":"x","state":"y"}]'])
def test_a_registry_that_cannot_be_read_moves_nothing(text: str) -> None:
    registry = {"metadata": {"name": REGISTRY, "resourceVersion": "1", "uid": "u"}, "data": {"keys.json": text}}
    view = KeysView(registry, {"gateway": SigningKey("k", "p")}, frozenset(), "paceline-system", 0.0, 0.0)
    if text == "{}":
        assert plan_keys(view).trust == {"keys": []}
        return
    with pytest.raises(InvalidInput, match="mend keys"):
        plan_keys(view)


@given(st.lists(st.sampled_from(["look", "wait", "publish", "retire", "restart", "rotate", "month"]), max_size=25))
def test_whatever_happens_the_key_in_a_secret_is_trusted(moves: list[str]) -> None:
    """The one promise: what a signer may sign with, every worker that is up to date believes."""
    found = begun()
    waits = {"wait": 10.0, "publish": PUBLISH_S + 1, "retire": RETIRE_S + 1, "month": 31 * DAY, "look": 0.0}
    for number, move in enumerate(moves):
        if move == "restart":
            found.restart()
        elif move == "rotate":
            found.rotate(str(number))
        found.step(waits.get(move, 0.0))
        assert set(found.secrets.values()) <= found.trusted()
    for _ in range(6):
        found.settle()
        found.step(RETIRE_S + 1)
    found.settle()
    assert found.states() == ["active"]


@pytest.mark.parametrize("death", range(1, 8))
def test_a_death_after_any_step_of_a_rotation_ends_with_one_trusted_key(death: int) -> None:
    found = begun()
    found.rotate()
    for number in range(8):
        if number == death:
            found.restart()
        found.step(PUBLISH_S + 1 if number % 2 else 0.0)
        assert set(found.secrets.values()) <= found.trusted()
    for _ in range(4):
        found.step(RETIRE_S + 1)
        found.settle()
    assert found.states() == ["active"]
    assert found.trusted() == set(found.secrets.values())


MOUNT_S = 90.0
"""A kubelet renews mounted ConfigMaps and Secrets within a minute and half as much again by chance."""


def test_each_wait_is_longer_than_a_kubelet_takes_to_renew_what_is_mounted() -> None:
    assert PUBLISH_S > MOUNT_S  # workers have the public half before its signer has the private one
    assert RETIRE_S > MOUNT_S + LIFETIME_S  # the old one is trusted until its last token has expired
