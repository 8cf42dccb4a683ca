"""Pool and track from names cut as Kubernetes cuts them (k8s.io/apiserver/pkg/storage/names/generate.go)."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.kube.endpoints import pool_and_track
from paceline_core.objects.naming import CANARY, STABLE, deployment_name

SAFE = "bcdfghjklmnpqrstvwxz2456789"
KEPT = 58
NAMES = st.from_regex(r"\A[a-z]([-a-z0-9]{0,38}[a-z0-9])?\Z")
POOLS = st.from_regex(r"\A[a-z][a-z0-9]{0,14}\Z").filter(lambda pool: pool != CANARY)
TRACKS = st.sampled_from([STABLE, CANARY])
HASHES = st.text(SAFE, min_size=1, max_size=10)
TAILS = st.text(SAFE, min_size=5, max_size=5)


def pod_name(service: str, pool: str, track: str, template: str, tail: str) -> str:
    base = f"{deployment_name(service, pool, track)}-{template}-"
    return base[:KEPT] + tail


@given(NAMES, POOLS, TRACKS, HASHES, TAILS)
def test_a_pods_name_tells_pool_and_track(service: str, pool: str, track: str, template: str, tail: str) -> None:
    found = pool_and_track(service, pod_name(service, pool, track, template, tail))
    one_letter_left = len(service) + len(pool) == 55 and (track == CANARY or template[0] == "c")
    assert found == (pool, STABLE if one_letter_left else track)


def test_the_longest_names_keep_their_pool_and_one_letter() -> None:
    service, pool = "s" * 40, "p" * 15
    assert pod_name(service, pool, CANARY, "7d4f", "abcde").endswith("p-cabcde")
    assert pool_and_track(service, pod_name(service, pool, CANARY, "7d4f", "abcde")) == (pool, STABLE)
    assert pool_and_track(service, pod_name(service, pool, STABLE, "7d4f", "abcde")) == (pool, STABLE)


def test_two_letters_of_canary_are_enough() -> None:
    service, pool = "s" * 40, "p" * 14
    assert pool_and_track(service, pod_name(service, pool, CANARY, "7d4f", "abcde")) == (pool, CANARY)


def test_a_services_name_may_begin_like_anothers() -> None:
    assert pool_and_track("chat", "chat-main-7d4f-abcde") == ("main", STABLE)
    assert pool_and_track("chat-main", "chat-main-canary-7d4f-abcde") == (CANARY, STABLE)


@given(NAMES, st.text(max_size=80))
def test_no_name_makes_it_stumble(service: str, pod: str) -> None:
    pool, track = pool_and_track(service, pod)
    assert track in {STABLE, CANARY}
    assert pool == "" or pod.startswith(f"{service}-{pool}-")


def test_a_foreign_pod_has_no_pool() -> None:
    assert pool_and_track("chat", "somebody-7d4f-abcde") == ("", STABLE)
    assert pool_and_track("chat", "chat-0") == ("", STABLE)
