"""Requests to an API server that answers well, badly or not at all."""

from pathlib import Path

import pytest
from tests.core.kube.api_peer import Peer, answer, config_map, connected, listed, status, stream

from paceline_core.clock import ManualClock
from paceline_core.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import BODY_LIMIT, KubeClient
from paceline_core.kube.client.resource import RESOURCES

CONFIG = RESOURCES["ConfigMap"]
HERE = ObjectKey("default", "a")
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}


async def test_an_object_is_read_with_our_token(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(answer(config_map("a", 1)))
    assert (await api.get(CONFIG, HERE))["metadata"]["name"] == "a"
    (asked,) = peer.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/namespaces/default/configmaps/a")
    assert asked.headers["Authorization"] == "Bearer first"
    assert asked.headers["Accept-Encoding"] == "identity"


async def test_a_list_is_read_page_by_page(peer: Peer, api: KubeClient) -> None:
    peer.answers += [listed(config_map("a", 1), more="next"), listed(config_map("b", 2), version="11")]
    found = await api.snapshot(CONFIG, "default", selector="x=y")
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.version == "11"
    assert [asked.query.get("continue") for asked in peer.asked] == [None, "next"]
    assert {asked.query["labelSelector"] for asked in peer.asked} == {"x=y"}
    assert {asked.query["limit"] for asked in peer.asked} == {"100"}


async def test_items_of_a_list_say_what_they_are(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed(config_map("a", 1)))
    (item,) = await api.list(CONFIG)
    assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")


async def test_an_empty_collection_may_be_null(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(answer({"metadata": {"resourceVersion": "3"}, "items": None}))
    assert await api.list(CONFIG) == []


async def test_an_apply_names_its_manager_and_whether_it_insists(peer: Peer, api: KubeClient) -> None:
    peer.answers += [answer(BODY), answer(BODY)]
    await api.apply(CONFIG, BODY, "paceline-operator")
    await api.apply(CONFIG, BODY, "paceline-replicas", force=False, subresource="status")
    first, second = peer.asked
    assert (first.method, first.headers["Content-Type"]) == ("PATCH", "application/apply-patch+yaml")
    assert dict(first.query) == {"fieldManager": "paceline-operator", "force": "true"}
    assert dict(second.query) == {"fieldManager": "paceline-replicas", "force": "false"}
    assert second.path.endswith("/configmaps/a/status")


async def test_a_delete_is_guarded_by_the_uid_and_satisfied_by_absence(peer: Peer, api: KubeClient) -> None:
    peer.answers += [answer({"kind": "Status"}), status(404, "gone"), status(409, "the UID does not match")]
    await api.delete(CONFIG, HERE, uid="u1")
    assert peer.asked[0].body["preconditions"] == {"uid": "u1"}
    assert peer.asked[0].body["propagationPolicy"] == "Background"
    await api.delete(CONFIG, HERE)
    assert "preconditions" not in peer.asked[1].body
    with pytest.raises(Conflict, match="UID"):
        await api.delete(CONFIG, HERE, uid="u2")


async def test_a_conflict_keeps_the_words_that_name_the_other_manager(peer: Peer, api: KubeClient) -> None:
    words = 'Apply failed with 1 conflict: conflict with "kubectl-edit" using apps/v1: .spec.replicas'
    peer.answers.append(status(409, words, "Conflict"))
    with pytest.raises(Conflict, match=r"kubectl-edit.*replicas"):
        await api.apply(CONFIG, BODY, "x", force=False)


async def test_an_object_replaced_in_between_is_a_conflict_too(peer: Peer, api: KubeClient) -> None:
    causes = {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}
    peer.answers.append(status(422, "field is immutable", "Invalid", causes))
    with pytest.raises(Conflict):
        await api.apply(CONFIG, BODY, "x")


async def test_a_missing_right_names_verb_and_resource(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(status(403, 'User "x" cannot list resource "configmaps"', "Forbidden"))
    with pytest.raises(Forbidden, match='cannot list resource "configmaps"') as raised:
        await api.list(CONFIG)
    assert raised.value.status == 403


async def test_an_invalid_object_is_refused_with_its_field(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(status(422, 'ConfigMap "a" is invalid: data: Required value', "Invalid"))
    with pytest.raises(ApiError, match="data: Required value") as raised:
        await api.create(CONFIG, "default", BODY)
    assert (raised.value.status, raised.value.reason, raised.value.retry_after) == (422, "Invalid", None)


async def test_too_many_requests_says_when_to_come_back(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(status(429, "too many", "TooManyRequests", **{"Retry-After": "7"}))
    with pytest.raises(ApiError) as raised:
        await api.get(CONFIG, HERE)
    assert raised.value.retry_after == 7.0
    assert len(peer.asked) == 1


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_server_in_trouble_is_unreachable_and_not_asked_again(peer: Peer, api: KubeClient, code: int) -> None:
    peer.answers.append(status(code, "etcd is away"))
    with pytest.raises(Unreachable, match=f"{code}.*etcd is away"):
        await api.get(CONFIG, HERE)
    assert len(peer.asked) == 1


async def test_a_redirect_is_not_followed(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(answer({}, 302, Location="http://127.0.0.1:1/"))
    with pytest.raises(Unreachable, match="302"):
        await api.get(CONFIG, HERE)


async def test_an_absent_object_is_not_found(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(status(404, 'configmaps "a" not found', "NotFound"))
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await api.get(CONFIG, HERE)


async def test_an_answer_that_does_not_come_is_unreachable_and_a_success_behind_it_is_met_again(
    peer: Peer, tmp_path: Path
) -> None:
    """A POST that was carried out after its answer was given up is a Conflict at the next try."""
    async with connected(peer, tmp_path) as api:
        peer.answers += [stream(b"{", hang=True), status(409, "already exists", "AlreadyExists")]
        with pytest.raises(Unreachable, match="POST /api/v1/namespaces/default/configmaps"):
            await api.create(CONFIG, "default", BODY)
        with pytest.raises(Conflict):
            await api.create(CONFIG, "default", BODY)


@pytest.mark.parametrize("body", [b"not json", b"[]", b'{"half":', b"\xef\xbb\xbf{}", b""])
async def test_what_is_no_object_is_unreachable(peer: Peer, api: KubeClient, body: bytes) -> None:
    peer.answers.append(stream(body) if body else stream())
    with pytest.raises(Unreachable, match="GET /api/v1"):
        await api.get(CONFIG, HERE)


async def test_an_answer_beyond_the_limit_is_not_held(peer: Peer, api: KubeClient) -> None:
    piece = b" " * (1 << 20)
    peer.answers.append(stream(*[piece] * (BODY_LIMIT // len(piece) + 1)))
    with pytest.raises(Unreachable, match="larger than 64 MiB"):
        await api.get(CONFIG, HERE)


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    async with connected(Peer(url="http://127.0.0.1:9"), tmp_path) as api:
        with pytest.raises(Unreachable, match="did not answer GET"):
            await api.get(CONFIG, HERE)


async def test_after_a_401_the_token_is_read_again(
    peer: Peer, api: KubeClient, tmp_path: Path, clock: ManualClock
) -> None:
    peer.answers += [status(401, "Unauthorized"), answer(config_map("a", 1))]
    (tmp_path / "token").write_text("second")
    clock.advance(60)
    await api.get(CONFIG, HERE)
    assert [asked.headers["Authorization"] for asked in peer.asked] == ["Bearer first", "Bearer second"]


async def test_a_second_401_is_the_end(peer: Peer, api: KubeClient, clock: ManualClock) -> None:
    peer.answers += [status(401, "Unauthorized")] * 3
    clock.advance(60)
    with pytest.raises(Unreachable, match="does not accept our credentials"):
        await api.get(CONFIG, HERE)
    assert len(peer.asked) == 2


async def test_a_login_that_fails_is_unreachable_and_not_a_crash(
    peer: Peer, api: KubeClient, tmp_path: Path, clock: ManualClock
) -> None:
    peer.answers.append(status(401, "Unauthorized"))
    (tmp_path / "config").write_text("clusters: [")
    clock.advance(60)
    with pytest.raises(Unreachable, match="not a usable kubeconfig"):
        await api.get(CONFIG, HERE)
