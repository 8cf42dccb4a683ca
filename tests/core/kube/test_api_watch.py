"""Watches of an API server that cuts, hangs, expires, refuses and lies: one WatchLost, then Listed, nothing missed."""

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.core.kube.api_peer import Peer, Script, config_map, line, listed, mute, status, stream

from paceline_core.clock import ManualClock
from paceline_core.kube import Deleted, Listed, Upserted, WatchLost
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, oldest, watch_all
from paceline_core.kube.cluster import Manifest, WatchEvent

CONFIG = RESOURCES["ConfigMap"]
A, B = config_map("a", 11), config_map("b", 12)
BOOKMARK = line("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
BROKEN = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is away"}


async def seen(
    api: KubeClient, count: int, *namespaces: str, selector: str = "", pulse: WatchLiveness | None = None
) -> list[WatchEvent[Manifest]]:
    """The first events of a watch."""
    async with (
        aclosing(watch_all(api, WatchOptions(CONFIG, namespaces, selector), pulse)) as watch,
        asyncio.timeout(10),
    ):
        return [await anext(watch) for _ in range(count)]


def words(events: list[WatchEvent[Manifest]]) -> list[str]:
    """Events for the eye: `Listed a b`, `Upserted a`, `WatchLost`."""
    return [_word(event) for event in events]


def _word(event: WatchEvent[Manifest]) -> str:
    match event:
        case Listed(items):
            return " ".join(["Listed", *(item["metadata"]["name"] for item in items)])
        case Upserted(item) | Deleted(item):
            return f"{type(event).__name__} {item['metadata']['name']}"
    return "WatchLost"


async def test_a_list_then_what_changes(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed(A))
    peer.watches.append(stream(line("ADDED", B), line("MODIFIED", A) + line("DELETED", B), hang=True))
    assert words(await seen(api, 4)) == ["Listed a", "Upserted b", "Upserted a", "Deleted b"]
    watch = peer.asked[1]
    assert watch.query["resourceVersion"] == "10"
    assert watch.query["allowWatchBookmarks"] == "true"


async def test_a_selector_reaches_list_and_watch(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed())
    peer.watches.append(stream(line("ADDED", A), hang=True))
    await seen(api, 2, selector="paceline.dev/service")
    assert [asked.query["labelSelector"] for asked in peer.asked] == ["paceline.dev/service"] * 2


async def test_a_watch_that_ends_goes_on_where_it_was_without_a_word(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed(A))
    peer.watches += [stream(line("MODIFIED", A), BOOKMARK), stream(line("ADDED", B), hang=True)]
    assert words(await seen(api, 3)) == ["Listed a", "Upserted a", "Upserted b"]
    assert [asked.query.get("resourceVersion") for asked in peer.asked] == [None, "10", "20"]


async def test_silence_alone_is_no_fault_since_an_idle_kind_may_be_quiet(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed(A))
    peer.watches += [stream(BOOKMARK, hang=True), stream(line("ADDED", B), hang=True)]
    assert words(await seen(api, 2)) == ["Listed a", "Upserted b"]
    assert [asked.query.get("resourceVersion") for asked in peer.asked] == [None, "10", "20"]


async def test_a_server_that_hangs_for_good_is_lost_when_it_does_not_take_the_watch_anew(
    peer: Peer, api: KubeClient
) -> None:
    peer.answers += [listed(A), listed(B)]
    peer.watches += [stream(BOOKMARK, hang=True), mute(), stream(BOOKMARK, hang=True)]
    assert words(await seen(api, 3)) == ["Listed a", "WatchLost", "Listed b"]


async def test_bytes_may_come_one_by_one(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(listed())
    bytes_ = line("ADDED", A) + line("DELETED", A)
    peer.watches.append(stream(*(bytes_[i : i + 1] for i in range(len(bytes_))), hang=True))
    assert words(await seen(api, 3)) == ["Listed", "Upserted a", "Deleted a"]


FAULTS: dict[str, Script] = {
    "a cut connection": stream(line("ADDED", B), cut=True),
    "half a line, then a cut": stream(line("ADDED", B), line("ADDED", A)[:20], cut=True),
    "half a line, then a clean end": stream(line("ADDED", B), line("ADDED", A)[:20]),
    "half a line, then silence": stream(line("ADDED", B), line("ADDED", A)[:20], hang=True),
    "an ERROR event": stream(line("ADDED", B), line("ERROR", BROKEN)),
    "no JSON": stream(line("ADDED", B), b"<html>\n"),
    "JSON that is no event": stream(line("ADDED", B), b"[1]\n", b"{}\n"),
    "an event without an object": stream(line("ADDED", B), b'{"type":"ADDED","object":null}\n'),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_a_fault_there_is_lost_once_and_then_everything(peer: Peer, api: KubeClient, fault: str) -> None:
    peer.answers += [listed(A), listed(A, B)]
    peer.watches += [FAULTS[fault], stream(line("MODIFIED", A), hang=True)]
    told = words(await seen(api, 5))
    assert told == ["Listed a", "Upserted b", "WatchLost", "Listed a b", "Upserted a"]


REFUSALS: dict[str, Script] = {
    "401": status(401, "Unauthorized"),
    "403": status(403, 'cannot watch resource "configmaps"'),
    "404": status(404, "the server could not find the requested resource"),
    "429": status(429, "too many", **{"Retry-After": "7"}),
    "500": status(500, "etcd is away"),
    "a watch that ends at once": stream(),
}


@pytest.mark.parametrize("refused", REFUSALS)
async def test_a_refused_watch_is_lost_with_the_servers_words(peer: Peer, api: KubeClient, refused: str) -> None:
    peer.answers += [listed(A), listed(B)]
    peer.watches += [REFUSALS[refused]] * (2 if refused == "401" else 1) + [stream(BOOKMARK, hang=True)]
    assert words(await seen(api, 3)) == ["Listed a", "WatchLost", "Listed b"]


async def test_lost_says_why(peer: Peer, api: KubeClient) -> None:
    peer.answers.append(status(403, 'User "x" cannot list resource "configmaps"', "Forbidden"))
    assert await seen(api, 1) == [WatchLost('User "x" cannot list resource "configmaps"')]


async def test_an_outage_of_many_tries_is_one_lost(peer: Peer, api: KubeClient, clock: ManualClock) -> None:
    peer.answers += [listed(A), *[status(500, "etcd is away")] * 5, listed(B)]
    peer.watches += [stream(BOOKMARK, cut=True), stream(BOOKMARK, hang=True)]
    assert words(await seen(api, 3)) == ["Listed a", "WatchLost", "Listed b"]
    assert clock.monotonic() == pytest.approx(0.2 + 0.5 + 1 + 2 + 5 + 10)


async def test_a_server_that_lists_and_then_fails_is_asked_ever_more_rarely(
    peer: Peer, api: KubeClient, clock: ManualClock
) -> None:
    peer.answers += [listed(A)] * 4
    peer.watches += [stream(cut=True)] * 3 + [stream(BOOKMARK, hang=True)]
    assert words(await seen(api, 7)) == ["Listed a", "WatchLost"] * 3 + ["Listed a"]
    assert clock.monotonic() == pytest.approx(0.2 + 0.5 + 1)


async def test_the_server_says_how_long_to_stay_away(peer: Peer, api: KubeClient, clock: ManualClock) -> None:
    peer.answers += [status(429, "too many", **{"Retry-After": "7"}), listed(A)]
    assert words(await seen(api, 2)) == ["WatchLost", "Listed a"]
    assert clock.monotonic() == 7


EXPIRED: dict[str, Script] = {
    "as a status": status(410, "too old resource version", "Expired"),
    "as an ERROR event": stream(line("ADDED", B), line("ERROR", GONE)),
}


@pytest.mark.parametrize("form", EXPIRED)
async def test_an_expired_version_is_only_listed_anew(
    peer: Peer, api: KubeClient, form: str, clock: ManualClock
) -> None:
    peer.answers += [listed(A), listed(A, B)]
    peer.watches += [EXPIRED[form], stream(line("MODIFIED", A), hang=True)]
    told = words(await seen(api, 4 if form == "as an ERROR event" else 3))
    assert [word for word in told if word != "Upserted b"] == ["Listed a", "Listed a b", "Upserted a"]
    assert clock.monotonic() == 0


async def test_a_server_that_expires_everything_is_not_asked_in_a_loop(
    peer: Peer, api: KubeClient, clock: ManualClock
) -> None:
    peer.answers += [listed(A)] * 3
    peer.watches += [EXPIRED["as a status"]] * 2 + [stream(BOOKMARK, hang=True)]
    assert words(await seen(api, 4)) == ["Listed a", "Listed a", "WatchLost", "Listed a"]
    assert clock.monotonic() == 0.5


async def test_a_401_is_mended_by_a_new_token_without_a_word(
    peer: Peer, api: KubeClient, tmp_path: Path, clock: ManualClock
) -> None:
    clock.advance(60)
    (tmp_path / "token").write_text("second")
    peer.answers.append(listed(A))
    peer.watches += [status(401, "Unauthorized"), stream(line("ADDED", B), hang=True)]
    assert words(await seen(api, 2)) == ["Listed a", "Upserted b"]
    assert peer.asked[-1].headers["Authorization"] == "Bearer second"


async def test_two_namespaces_are_one_picture(peer: Peer, api: KubeClient) -> None:
    one, two = config_map("a", 1, "one"), config_map("b", 2, "two")
    peer.answers += [listed(one, version="1"), listed(two, version="2")]
    peer.watches += [stream(line("MODIFIED", one), hang=True), stream(line("DELETED", two), hang=True)]
    told = words(await seen(api, 3, "one", "two"))
    assert told[0] == "Listed a b"
    assert set(told[1:]) == {"Upserted a", "Deleted b"}
    assert {asked.path.split("/")[4] for asked in peer.asked} == {"one", "two"}


async def test_the_fault_of_one_namespace_lists_all_of_them_anew(peer: Peer, api: KubeClient) -> None:
    one, two = config_map("a", 1, "one"), config_map("b", 2, "two")
    peer.answers += [listed(one), listed(two), listed(one), listed(two)]
    peer.watches += [stream(BOOKMARK, hang=True), stream(cut=True), *[stream(BOOKMARK, hang=True)] * 2]
    assert words(await seen(api, 3, "one", "two")) == ["Listed a b", "WatchLost", "Listed a b"]


async def test_a_pulse_beats_with_every_byte(peer: Peer, api: KubeClient, clock: ManualClock) -> None:
    pulse = WatchLiveness("configmaps", clock)
    clock.advance(100)
    assert pulse.age(clock.monotonic()) == 100
    peer.answers.append(listed(A))
    peer.watches.append(stream(line("ADDED", B), hang=True))
    async with aclosing(watch_all(api, WatchOptions(CONFIG), pulse)) as watch:
        await anext(watch)
        assert pulse.age(clock.monotonic()) == 0
        clock.advance(50)
        await anext(watch)
        assert pulse.age(clock.monotonic()) == 0
    other = WatchLiveness("quiet", clock)
    clock.advance(3)
    pulse.stamp()
    assert oldest([pulse, other], clock.monotonic()) == ("quiet", 3)
    assert oldest([], clock.monotonic()) == ("", 0)


@pytest.mark.parametrize(("code", "silence"), [(401, 0.0), (403, 0.0), (500, 100.0)])
async def test_a_refusal_ages_what_is_known_and_is_no_silence(
    peer: Peer, api: KubeClient, clock: ManualClock, code: int, silence: float
) -> None:
    pulse = WatchLiveness("configmaps", clock)
    clock.advance(100)
    peer.answers += [status(code, "no")] * 2
    await seen(api, 1, pulse=pulse)
    assert (pulse.age(clock.monotonic()), pulse.silence(clock.monotonic())) == (100.0, silence)


async def test_many_watches_lost_at_once_are_one_line_in_the_log(
    peer: Peer, api: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    peer.answers += [status(500, "etcd is away")] * 8
    await asyncio.gather(*(seen(api, 1) for _ in range(8)))
    assert [record.getMessage() for record in caplog.records if "lost" in record.getMessage()] == [
        "a watch is lost; what it reported ages until it is back"
    ]


async def test_a_right_to_list_without_one_to_watch_is_named_once_until_a_stream_opens(
    peer: Peer, api: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refused = status(403, 'configmaps is forbidden: cannot watch resource "configmaps"')
    peer.answers += [listed(A)] * 4
    peer.watches += [refused, refused, refused, stream(line("ADDED", B), hang=True)]
    assert words(await seen(api, 8)) == ["Listed a", "WatchLost"] * 3 + ["Listed a", "Upserted b"]
    messages = [record.getMessage() for record in caplog.records if "watch is" in record.getMessage()]
    assert messages == ["a watch is lost; what it reported ages until it is back", "a watch is back"]
